"""The nouns of a script: a line as it was written, its limits, and how a file's bytes become text."""

from __future__ import annotations

from dataclasses import dataclass, field

from studio.errors import InvalidRequest

MAX_LINES = 1000
MAX_SPEAKER_CHARS = 64
MAX_PAUSE_S = 30.0
MAX_AT_S = 4 * 3600.0
SEED_MAX = 2**32 - 1
PAUSE_S = 0.3
"""Silence after a line where the script asks for none."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one line: a sentence of the catalogue with its values, said in the reader's language."""

    key: str
    values: dict[str, object] = field(default_factory=dict)

    @property
    def in_writing(self) -> bool:
        """Whether the row is written wrongly, so that only an edit can help."""
        return self.key.partition(".")[2].startswith("row_")


@dataclass(frozen=True, slots=True)
class DraftLine:
    """A line as written. speaker: who says it; voice: name or id, "" if the script names none.

    pause_s: silence after it; at_s: where it must not begin before, from subtitles; fault: why it cannot be spoken.
    """

    text: str
    speaker: str = ""
    voice: str = ""
    pause_s: float = PAUSE_S
    at_s: float | None = None
    seed: int | None = None
    fault: Fault | None = None


def decoded(data: bytes) -> str:
    """Text of a file from any desk: UTF-8, UTF-16 with its mark, or the Chinese coding that spreadsheets write.

    Raises: InvalidRequest script.not_text.
    """
    codings = ["utf-16"] if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ["utf-8-sig", "gb18030"]
    for coding in codings:
        try:
            text = data.decode(coding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text
    raise InvalidRequest("script.not_text", param="content")
