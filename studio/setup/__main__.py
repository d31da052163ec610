"""Set this machine up: `python3 -m studio.setup`. Safe to repeat; does nothing when all is in place."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from . import debian
from .machine import SetupProblem, check_limits, find_device, find_python
from .place import Place
from .steps import Step, pending, plan

ROOT = Path(__file__).resolve().parents[2]


def main(argv: list[str] | None = None) -> int:
    """Install what is not yet there; return the exit status."""
    options = _parser().parse_args(argv)
    place = Place(ROOT, (ROOT / options.venv).absolute())
    device = options.device if options.device != "auto" else find_device()
    try:
        _debian_packages(device, options.dev)
        steps = plan(place, device, options.dev)
        if pending(place, steps):
            find_python()
            if not options.ignore_limits:
                check_limits(ROOT, device)
            _install(place, steps)
    except SetupProblem as problem:
        print(f"Set-up stopped: {problem}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m studio.setup", description=__doc__)
    add = parser.add_argument
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: cuda if a GPU answers")
    add("--venv", default=".venv", help="where the virtual environment goes")
    add("--dev", action="store_true", help="also the tools for tests, and Debian's Chromium if root")
    add("--ignore-limits", action="store_true", help="go on although disk or memory is short")
    return parser


def _debian_packages(device: str, dev: bool) -> None:
    """Install what is missing if root wants to run the tests; else say it, and stop at what is required."""
    lacking = debian.missing(device, dev)
    if lacking and dev and debian.can_install():
        packages = [need.package for need in lacking]
        print(f"installing Debian's {' '.join(packages)} ...", flush=True)
        debian.install(packages)
        lacking = debian.missing(device, dev)
    for need in lacking:
        sentence = f"{need.name} is missing: {need.without}. {debian.remedy([need.package])}"
        if need.required:
            raise SetupProblem(sentence)
        print(f"Note: {sentence}", file=sys.stderr)


def _install(place: Place, steps: list[Step]) -> None:
    started = time.monotonic()
    for step in steps:
        # Asked anew each time: an environment that was made anew undoes every later step.
        if pending(place, [step]):
            print(f"{step.label} ...", flush=True)
            step.run()
            place.mark_done(step.name, step.fingerprint)
    print(f"Set-up finished in {time.monotonic() - started:.0f} s.", flush=True)


if __name__ == "__main__":
    sys.exit(main())
