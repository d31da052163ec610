"""What the doctor found about one thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "note", "FAULT"]


@dataclass(frozen=True, slots=True)
class Finding:
    """note: worth knowing, and no hindrance. FAULT: does not work; the detail says what to do."""

    verdict: Verdict
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.verdict:6} {self.subject:24} {self.detail}"
