"""Subtitles of a script as SRT and WebVTT. Pure; whatever a text holds, it stays one cue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cue:
    """What is heard from start_s to end_s; speaker may be empty."""

    start_s: float
    end_s: float
    speaker: str
    text: str


def to_srt(cues: Iterable[Cue]) -> str:
    """SubRip, in UTF-8 with CRLF as players expect."""
    blocks = (
        f"{number}\r\n{_clock(cue.start_s, ',')} --> {_clock(cue.end_s, ',')}\r\n{_said(cue)}\r\n"
        for number, cue in enumerate(cues, 1)
    )
    return "\r\n".join(blocks)


def to_vtt(cues: Iterable[Cue]) -> str:
    """WebVTT with speakers as voice spans."""
    blocks = ["WEBVTT\n"]
    for cue in cues:
        text = _escaped(_one_line(cue.text))
        voice = f"<v {_escaped(_one_line(cue.speaker))}>" if cue.speaker else ""
        blocks.append(f"{_clock(cue.start_s, '.')} --> {_clock(cue.end_s, '.')}\n{voice}{text}\n")
    return "\n".join(blocks)


def _said(cue: Cue) -> str:
    text = _one_line(cue.text).replace("-->", "→")
    return f"{_one_line(cue.speaker).replace('-->', '→')}: {text}" if cue.speaker else text


def _one_line(text: str) -> str:
    """Blank lines would end a cue."""
    return " ".join(text.split())


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _clock(seconds: float, mark: str) -> str:
    whole = round(1000 * max(0.0, seconds))
    return f"{whole // 3_600_000:02}:{whole // 60_000 % 60:02}:{whole // 1000 % 60:02}{mark}{whole % 1000:03}"
