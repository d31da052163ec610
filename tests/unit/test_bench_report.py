"""The tables of docs/performance.md are what its rows tell, and stay open where none does."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import fromstring

from studio.bench.report import PARTS, filled, pictures, read
from studio.bench.service import ROOT
from studio.bench.waterfall import STAGES

SVG = "{http://www.w3.org/2000/svg}"
PAGE = ROOT / "docs" / "performance.md"
FIGURES = {"mean_ms": 10.0, "p50_ms": 9.0, "p95_ms": 20.0}
ROWS = [
    {"bench": "table", "via": "http", "streams": 8, "ttfa_p50_ms": 1.0, "ttfa_p95_ms": 2.0, "audio_s_per_s": 5.0},
    {"bench": "table", "via": "http", "streams": 8, "ttfa_p50_ms": 100.0, "ttfa_p95_ms": 150.4, "audio_s_per_s": 120.3},
    {
        "bench": "baseline", "system": "naive", "streams": 8, "ttfa_p50_ms": 9e3, "ttfa_p95_ms": 1e4,
        "audio_s_per_s": 1.2,
    },
    {"bench": "waterfall", "streams": 1, "stages": dict.fromkeys(STAGES, FIGURES), "total": FIGURES},
    {"bench": "lm_step", "streams": 64, "step_p50_ms": 4.5, "step_p99_ms": 6.0},
    {"bench": "lm_step", "streams": 64, "beside_rows": 32, "step_p50_ms": 9.5, "step_p99_ms": 16.0},
    {"bench": "lm_step", "rows": 32, "lm_streams": 0, "steps": 9, "t2w_step_p50_ms": 70.5, "t2w_step_p99_ms": 80.0},
]  # fmt: skip


def test_page_has_a_place_for_every_table_and_is_as_its_rows_make_it() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->" in text and f"<!-- /{name} -->" in text for name in PARTS)
    assert text == filled(text, read(ROOT / "docs" / "bench" / "gpu.jsonl")), (
        "run python -m studio.bench.report"
    )


def test_last_row_of_a_load_counts_and_plain_serving_is_compared_with_it() -> None:
    assert "| 8 | 120 / 160, 90 | 50 / 75, 160 | 1,085 ms, 14.5 | 100 / 150, 120 |" in PARTS["loads"](ROWS)
    assert "| naive | 8 | 9,000 / 10,000, 1.2 | – | 90 times | 100 times |" in PARTS["plain"](ROWS)


def test_what_no_row_tells_stays_open() -> None:
    assert "| flow | 10.0 (20.0) | – |" in PARTS["stages"](ROWS)
    assert "| 64 | – | 4.5 / 6.0 | – | 9.5 / 16.0 |" in PARTS["lm-steps"](ROWS)
    assert "| 32 | 70.5 / 80.0 |" in PARTS["voicing-steps"](ROWS)
    assert all(render([]) for render in PARTS.values())


def test_pictures_are_drawn_of_what_the_rows_tell_and_shown_with_their_tables() -> None:
    growth = {"bench": "growth", "streams": 32, "speech_s": 26, "ms": [50.0, 60.0, 70.0, 1.0]}
    rows = [*ROWS, growth]
    drawn = {name: fromstring(svg) for name, svg in pictures(rows).items()}
    assert drawn.keys() == {"waterfall.svg", "growth.svg"} and pictures([]) == {}
    shown = [title.text for title in drawn["waterfall.svg"].iter(f"{SVG}title")]
    assert len(shown) == len(STAGES) and shown[0] == f"{STAGES[0]}: 10.0 ms"
    (line,) = drawn["growth.svg"].iter(f"{SVG}polyline")
    assert len(line.attrib["points"].split()) == 3, "the last hop is no whole one"
    assert "(bench/growth.svg)" in PARTS["hops"](rows) and ".svg" not in PARTS["hops"](ROWS)


def test_rows_are_read_from_a_file_that_may_not_be_there(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    assert read(file) == []
    file.write_text('{"a": 1}\n\n{"b": 2}\n')
    assert read(file) == [{"a": 1}, {"b": 2}]
