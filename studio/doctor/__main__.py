"""`python -m studio.doctor [flags of app.py]`: what is installed and fits, the GPU, the checkpoint, one sentence.

--quick leaves the sentence out, which starts the whole studio. Exit status: 0 nothing hinders, 1 something does.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from studio.doctor.checkpoint import CheckpointExam
from studio.doctor.finding import Finding
from studio.doctor.machine import machine_findings
from studio.doctor.packages import package_findings
from studio.doctor.speech import speech_findings
from studio.hub.download import Download
from studio.hub.listing import Repository
from studio.settings import Settings, exit_on_error


def findings(settings: Settings, flags: Sequence[str], *, quick: bool) -> Iterator[Finding]:
    """Everything, the cheap things first; the sentence is left out where something hinders it already."""
    cache = settings.folder("cache")
    hindered = False
    for finding in (*machine_findings(cache), *package_findings()):
        hindered = hindered or finding.verdict == "FAULT"
        yield finding
    folder = Path(settings.model_dir)
    if repository := Repository.of(settings):
        folder = Download(repository, cache / "hub").folder
        if not folder.is_dir():
            remedy = f"`.venv/bin/python -m studio.hub {repository.id}` fetches it"
            yield Finding("note", "checkpoint", f"not fetched yet; {remedy}")
            return
    for finding in CheckpointExam(folder, cache).findings():
        hindered = hindered or finding.verdict == "FAULT"
        yield finding
    if hindered:
        yield Finding("note", "speech", "not tried, since something above hinders it")
    elif not quick:
        yield from asyncio.run(speech_findings(["--cache-dir", str(cache), *flags]))


def main(argv: list[str]) -> int:
    if "-h" in argv or "--help" in argv:
        print(__doc__)
        return 0
    flags = [flag for flag in argv if flag != "--quick"]
    faults = 0
    for finding in findings(exit_on_error(flags), flags, quick="--quick" in argv):
        print(finding, flush=True)
        faults += finding.verdict == "FAULT"
    print(f"{faults} faults" if faults else "nothing hinders")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
