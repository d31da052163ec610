"""Pasted or uploaded scripts to lines: plays, CSV and subtitles. Pure; a bad row becomes a line with its fault."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from studio.errors import InvalidRequest
from studio.script.lines import (
    MAX_AT_S,
    MAX_LINES,
    MAX_PAUSE_S,
    MAX_SPEAKER_CHARS,
    PAUSE_S,
    SEED_MAX,
    DraftLine,
    Fault,
)

MAX_FIELD_CHARS = 100_000
_IN_NAME = "[^:：,;.!?。，！？/]"
_SPEAKER = re.compile(rf"\s*(?!\s)({_IN_NAME}{{1,41}}?)\s*[:：](?!//|(?<=\d[:：])\d)\s*(.*)", re.S)
_PAUSE = re.compile(r"\s*[\[(（]\s*(?:pause|停顿)\s*(\d{1,2}(?:\.\d{1,3})?)\s*(?:s|秒)?\s*[\])）]\s*", re.I)
_TIME = re.compile(r"(?:(\d{1,3}):)?(\d{1,2}):(\d{1,2})[,.](\d{1,3})\s*-->\s*\S")
_VOICE_TAG = re.compile(r"<v(?:\.[^ >]*)? ([^>]{1,64})>")
_TAG = re.compile(r"<[^<>]{0,80}>|\{\\[^{}]{0,80}\}")
_COLUMNS = {
    "text": ("text", "input", "line", "sentence", "文本", "台词", "内容"),
    "voice": ("voice", "音色", "声音"),
    "speaker": ("speaker", "name", "character", "role", "角色", "说话人"),
    "pause_s": ("pause_s", "pause", "停顿"),
    "seed": ("seed", "随机种子", "种子"),
}


def parse(content: str, form: str = "auto") -> tuple[str, list[DraftLine]]:
    """The form that was read ("play", "csv" or "srt") and its lines, in order.

    Raises: InvalidRequest when there is nothing to speak, or more than MAX_LINES lines.
    """
    content = content.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    form = _form_of(content) if form == "auto" else form
    lines: list[DraftLine] = []
    for line in _PARSERS[form](content):
        if len(lines) == MAX_LINES:
            raise InvalidRequest("script.too_long", param="content", limit=MAX_LINES)
        lines.append(line)
    if not lines:
        raise InvalidRequest("script.empty", param="content")
    return form, lines


def _form_of(content: str) -> str:
    head = content[:4000]
    if _TIME.search(head):
        return "srt"
    first = next((row for row in head.split("\n") if row.strip()), "")
    return "csv" if "text" in _header(first).values() else "play"


def parse_play(content: str) -> Iterator[DraftLine]:
    """ "Name: line" each; a line without a name goes on with the speaker before; blank lines divide what is said.

    [pause 0.5s] on a line of its own is the silence after the line before.
    """
    last: DraftLine | None = None
    may_go_on = False
    for row in content.split("\n"):
        if pause := _PAUSE.fullmatch(row):
            last = replace(last, pause_s=min(float(pause[1]), MAX_PAUSE_S)) if last else None
            may_go_on = False
            continue
        if not row.strip():
            may_go_on = False
            continue
        named = _SPEAKER.fullmatch(row)
        if named is None and may_go_on and last is not None:
            last = replace(last, text=f"{last.text} {row.strip()}")
            continue
        if last is not None and last.text:
            yield last
        speaker, text = (named[1], named[2]) if named else (last.speaker if last else "", row)
        last = DraftLine(text.strip(), speaker)
        may_go_on = True
    if last is not None and last.text:
        yield last


def parse_csv(content: str) -> Iterator[DraftLine]:
    """Rows with a column "text" and, if wanted, voice, speaker, pause and seed; every row gives a line."""
    first, _, _rest = content.lstrip("\n").partition("\n")
    columns = _header(first)
    if "text" not in columns.values():
        raise InvalidRequest("script.no_text_column", param="content", columns=", ".join(_COLUMNS))
    csv.field_size_limit(MAX_FIELD_CHARS)
    rows = csv.reader(io.StringIO(content.replace("\0", "")), delimiter=_delimiter(first))
    try:
        next(row for row in rows if any(row))
        for row in rows:
            if any(cell.strip() for cell in row):
                yield _row({columns[n]: cell.strip() for n, cell in enumerate(row) if n in columns})
    except csv.Error as error:
        raise InvalidRequest("script.csv", param="content", row=rows.line_num, reason=error) from None


def _row(cells: dict[str, str]) -> DraftLine:
    fault: Fault | None = None
    if not cells.get("text"):
        fault = Fault("script.row_empty")
    pause_s = _number(cells.get("pause_s", ""), MAX_PAUSE_S)
    if pause_s is None:
        fault = Fault("script.row_pause", {"written": cells["pause_s"][:40], "limit": MAX_PAUSE_S})
    seed = cells.get("seed", "")
    if seed and not (seed.isascii() and seed.isdecimal() and len(seed) <= 10 and int(seed) <= SEED_MAX):
        fault, seed = Fault("script.row_seed", {"written": seed[:40]}), ""
    return DraftLine(
        " ".join(cells.get("text", "").split()),
        cells.get("speaker", "")[:MAX_SPEAKER_CHARS],
        cells.get("voice", "")[:MAX_SPEAKER_CHARS],
        PAUSE_S if pause_s is None or not cells.get("pause_s") else pause_s,
        seed=int(seed) if seed else None,
        fault=fault,
    )


def _number(written: str, most: float) -> float | None:
    """Seconds from 0 to most; 0 for nothing written, None for anything else."""
    try:
        value = float(written.rstrip("s秒").replace(",", ".") or 0)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= most else None


def _header(first: str) -> dict[int, str]:
    """Column number -> our name of it, for those that are known."""
    cells = next(csv.reader([first[:MAX_FIELD_CHARS]], delimiter=_delimiter(first)), [])
    names = {known: name for name, all_known in _COLUMNS.items() for known in all_known}
    found = {n: names.get(cell.strip().strip("\ufeff").lower(), "") for n, cell in enumerate(cells[:50])}
    return {n: name for n, name in found.items() if name}


def _delimiter(first: str) -> str:
    return max(",;\t", key=first.count)


def parse_srt(content: str) -> Iterator[DraftLine]:
    """SRT or WebVTT: each cue a line that begins no earlier than its cue; "Name: text" and <v Name> give speakers."""
    at_s: float | None = None
    said: list[str] = []
    rows = content.split("\n")
    for number, row in enumerate([*rows, ""]):
        time = _TIME.search(row)
        if time or not row.strip():
            if at_s is not None and (line := _cue(said, at_s)):
                yield line
            at_s, said = (_seconds(time) if time else None), []
        elif at_s is not None and not _is_index(rows, number):
            said.append(row.strip())


def _is_index(rows: list[str], number: int) -> bool:
    """A number right before the times of the next cue, where a blank line is missing."""
    return rows[number].strip().isdecimal() and number + 1 < len(rows) and bool(_TIME.search(rows[number + 1]))


def _cue(said: list[str], at_s: float) -> DraftLine | None:
    text = " ".join(said)
    voice = _VOICE_TAG.search(text)
    text = " ".join(_TAG.sub("", text).split()).removeprefix("- ")
    named = None if voice else _SPEAKER.fullmatch(text)
    if named and named[2]:
        text = named[2]
    speaker = voice[1].strip() if voice else named[1] if named and named[2] else ""
    return DraftLine(text, speaker, pause_s=0.0, at_s=at_s) if text else None


def _seconds(time: re.Match[str]) -> float:
    hours, minutes, seconds, fraction = time.groups()
    whole = 3600 * int(hours or 0) + 60 * int(minutes) + int(seconds)
    return min(whole + float(f"0.{fraction}"), MAX_AT_S)


_PARSERS: dict[str, Callable[[str], Iterator[DraftLine]]] = {
    "play": parse_play,
    "csv": parse_csv,
    "srt": parse_srt,
}
FORMS = tuple(_PARSERS)
