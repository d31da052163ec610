"""`python -m studio.bench.report`: fills the tables of docs/performance.md from the JSON lines in docs/bench/gpu.jsonl.

A table stands between `<!-- NAME -->` and `<!-- /NAME -->`; of rows about the same load the last one counts. Beside the
rows it draws `waterfall.svg` and `growth.svg`. It measures nothing; what no row tells stays open.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from studio.bench.pictures import bars
from studio.bench.pictures import lines as lines_of
from studio.bench.service import ROOT
from studio.bench.waterfall import STAGES

Row = dict[str, Any]
OPEN = "–"
TARGETS = (
    (1, "90 / 110, 12", "40 / 50, 25", "185 ms, 8.7"),
    (8, "120 / 160, 90", "50 / 75, 160", "1,085 ms, 14.5"),
    (32, "180 / 260, 250", "75 / 120, 400", "1,830 ms at 16, 22.6"),
    (64, "280 / 400, 350", "110 / 180, 600", "none"),
    (128, "450 / 700, 450", "180 / 300, 800", "none"),
)
"""Streams; first audio p50 / p95 in ms and seconds of sound a second that must be and that are aimed at; published."""


def loads(rows: Sequence[Row]) -> str:
    """The table of the targets, with what was measured over HTTP."""
    lines = []
    for streams, must, aim, published in TARGETS:
        row = _last(rows, bench="table", via="http", streams=streams)
        of_it = {"commit": row.get("commit"), "note": row.get("note")} if row else {}
        engine = _last(rows, bench="table", via="engine", streams=streams, **of_it)
        lines.append((
            _listeners(streams), must, aim, published, _audio(row), _told(row, "ttfa_p99_ms"),
            _told(row, "loud_p50_ms"), _audio(engine), _told(row, "continuity"), _told(row, "failures"), _gib(row),
            (row or {}).get("note") or OPEN,
        ))  # fmt: skip
    return _table(
        "streams", "must", "aim", "best published", "ours: p50 / p95 ms, audio-s/s", "p99", "audible p50 ms",
        "without HTTP", "continuity", "failures", "GPU GiB", "with", lines=lines,
    )  # fmt: skip


def ways(rows: Sequence[Row]) -> str:
    """The same loads under each set of settings that a run was made with, the older ones first."""
    found = [row for row in rows if row.get("bench") == "table" and row.get("via") == "http" and "ttfa_p50_ms" in row]
    streams = [n for n, *_ in TARGETS]
    lines = [
        (note, commit, *(_audio(_last(found, note=note, commit=commit, streams=n)) for n in streams))
        for note, commit in dict.fromkeys((row.get("note", ""), row.get("commit", "")) for row in found)
    ]
    return _table("with", "commit", *map(_listeners, streams), lines=lines)


def stages(rows: Sequence[Row]) -> str:
    """Where the time to the first bytes went, mean (95th percentile) in ms."""
    found = [(n, _last(rows, bench="waterfall", streams=n)) for n in (1, 128)]

    def cell(row: Row | None, stage: str) -> str:
        figures = {**(row or {}).get("stages", {}), "all": (row or {}).get("total")}.get(stage)
        if figures is None:
            return OPEN
        return f"{figures['mean_ms']:.1f} ({figures['p95_ms']:.1f})"

    # As the rows name them: older ones have fewer. Without a row, those that there will be.
    names = dict.fromkeys(stage for _, row in found if row for stage in row.get("stages", {})) or dict.fromkeys(STAGES)
    lines = [(stage, *(cell(row, stage) for _, row in found)) for stage in (*names, "all")]
    return _table("stage", *(_streams(n) for n, _ in found), lines=lines) + _picture(rows, "waterfall.svg")


def hops(rows: Sequence[Row]) -> str:
    """The growth curve, at its ends."""
    lines = []
    for streams in (1, 32):
        row = _last(rows, bench="growth", streams=streams)
        ends = [f"{_told(row, f'{name}first_ms')} → {_told(row, f'{name}last_ms')}" for name in ("", "read_")]
        lines.append((str(streams), _told(row, "speech_s"), *ends, _told(row, "last_over_first")))
    heads = ("streams", "seconds of speech", "hop ms, first → last", "reading the keys ms", "last / first")
    return _table(*heads, lines=lines) + _picture(rows, "growth.svg")


def lm_steps(rows: Sequence[Row]) -> str:
    """Steps of the speech LM alone and beside token2wav."""
    beside = sorted({row["beside_rows"] for row in rows if "beside_rows" in row})
    lines = []
    for streams in (1, 8, 64, 128):
        alone = _last(rows, bench="lm_step", streams=streams, beside_rows=None)
        cells = [_last(rows, bench="lm_step", streams=streams, beside_rows=n) for n in beside]
        lines.append((
            str(streams), _told(alone, "first_token_p50_ms"), _steps(alone, "step"), _told(alone, "tokens_per_s"),
            *(_steps(cell, "step") for cell in cells),
        ))  # fmt: skip
    heads = (f"beside {n} rows of token2wav" for n in beside)
    return _table(
        "streams", "first token p50 ms", "step p50 / p99 ms", "tokens a second", *heads, lines=lines
    )


def voicing_steps(rows: Sequence[Row]) -> str:
    """Steps of token2wav alone and beside the speech LM."""
    found = [row for row in rows if row.get("bench") == "lm_step" and row.get("steps")]
    streams = sorted({row["lm_streams"] for row in found})
    lines = [
        (str(n), *(_steps(_last(found, rows=n, lm_streams=s), "t2w_step") for s in streams))
        for n in sorted({row["rows"] for row in found})
    ]
    heads = ("alone" if n == 0 else f"beside {n} streams of the LM" for n in streams)
    return _table("rows", *(f"step p50 / p99 ms {head}" for head in heads), lines=lines)


def plain(rows: Sequence[Row]) -> str:
    """Plain serving of the same models on the same machine, and how much better the studio is."""
    lines = []
    newest = {(r["system"], r["streams"]): r for r in rows if r.get("bench") == "baseline"}
    for row in newest.values():
        ours = _last(rows, bench="table", via="http", streams=row["streams"])
        sooner, more = OPEN, OPEN
        if ours and "ttfa_p50_ms" in ours:
            sooner = f"{row['ttfa_p50_ms'] / ours['ttfa_p50_ms']:.0f} times"
            more = f"{ours['audio_s_per_s'] / row['audio_s_per_s']:.0f} times"
        lines.append(
            (row["system"], str(row["streams"]), _audio(row), _told(row, "continuity"), sooner, more)
        )
    return _table(
        "system",
        "listeners",
        "p50 / p95 ms, audio-s/s",
        "continuity",
        "ours comes sooner by",
        "and is more by",
        lines=lines,
    )


PARTS: dict[str, Callable[[Sequence[Row]], str]] = {
    "loads": loads, "ways": ways, "stages": stages, "hops": hops, "lm-steps": lm_steps, "voicing-steps": voicing_steps,
    "plain": plain,
}  # fmt: skip


def filled(text: str, rows: Sequence[Row]) -> str:
    """The text with every known table written anew."""
    for name, render in PARTS.items():
        part = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.S)
        text = part.sub(partial(_between, body=render(rows)), text)
    return text


def _between(found: re.Match[str], body: str) -> str:
    return f"{found[1]}{body}\n{found[2]}"


def _last(of: Sequence[Row], **wanted: object) -> Row | None:
    return next((row for row in reversed(of) if all(row.get(k) == v for k, v in wanted.items())), None)


def _told(row: Row | None, name: str) -> str:
    return OPEN if row is None or name not in row else f"{row[name]:,}"


def _audio(row: Row | None) -> str:
    if row is None or "ttfa_p50_ms" not in row:
        return OPEN
    made = row["audio_s_per_s"]
    return f"{row['ttfa_p50_ms']:,.0f} / {row['ttfa_p95_ms']:,.0f}, {made:,.{0 if made >= 20 else 1}f}"


def _steps(row: Row | None, name: str) -> str:
    if row is None or f"{name}_p50_ms" not in row:
        return OPEN
    return f"{row[f'{name}_p50_ms']} / {row[f'{name}_p99_ms']}"


def _gib(row: Row | None) -> str:
    return OPEN if row is None or "gpu_bytes" not in row else f"{row['gpu_bytes'] / 2**30:.0f}"


def _table(*heads: str, lines: Iterable[Sequence[str]]) -> str:
    rows = ["| " + " | ".join(cells) + " |" for cells in (heads, ["---"] * len(heads), *lines)]
    return "\n".join(rows)


def pictures(rows: Sequence[Row]) -> dict[str, str]:
    """SVG by file name, of what the rows tell."""
    found: dict[str, str] = {}
    waterfalls = {_streams(n): _last(rows, bench="waterfall", streams=n) for n in (1, 128)}
    means = {
        name: {stage: figures["mean_ms"] for stage, figures in row["stages"].items()}
        for name, row in waterfalls.items()
        if row and "stages" in row
    }
    if means:
        found["waterfall.svg"] = bars(means)
    growths = {_streams(n): _last(rows, bench="growth", streams=n) for n in (1, 32)}
    curves = {name: row["ms"][:-1] for name, row in growths.items() if row and "ms" in row}
    if curves:
        found["growth.svg"] = lines_of(curves, "seconds into the speech", "ms a hop of 1 s")
    return found


def _picture(rows: Sequence[Row], name: str) -> str:
    return f"\n\n![{name.removesuffix('.svg')}](bench/{name})" if name in pictures(rows) else ""


def _listeners(count: int) -> str:
    return f"{count} at once" if count == 128 else str(count)


def _streams(count: int) -> str:
    return f"{count} streams" if count > 1 else "1 stream"


def read(path: Path) -> list[Row]:
    """The rows of a file of JSON lines; none where there is no file."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m studio.bench.report", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--rows", type=Path, default=ROOT / "docs" / "bench" / "gpu.jsonl")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md")
    args = parser.parse_args(argv)
    rows = read(args.rows)
    args.page.write_text(filled(args.page.read_text(encoding="utf-8"), rows), encoding="utf-8")
    for name, drawn in pictures(rows).items():
        args.rows.with_name(name).write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
