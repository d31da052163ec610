"""Where the studio is installed, and the stamp there that says which steps are done."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

STAMP = "studio-setup.json"


@dataclass(frozen=True)
class Place:
    """The repository's root and the virtual environment that serves it."""

    root: Path
    venv: Path

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    def file(self, name: str) -> Path:
        """Return the path of a file at the repository's root."""
        return self.root / name

    def stamp(self) -> dict[str, str]:
        """Return step name -> fingerprint of the finished steps; empty if the environment has no Python."""
        if not self.python.exists():
            return {}
        try:
            return dict(json.loads((self.venv / STAMP).read_text()))
        except (OSError, ValueError):
            return {}

    def mark_done(self, step: str, fingerprint: str) -> None:
        """Add a finished step; the file is replaced whole, so a kill leaves the old one."""
        part = self.venv / (STAMP + ".part")
        part.write_text(json.dumps({**self.stamp(), step: fingerprint}, indent=1) + "\n")
        part.replace(self.venv / STAMP)
