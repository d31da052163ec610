"""The bench of the flow's solve as a GPU will run it, but for kernels and graphs."""

import json

import pytest

from studio.bench.flow_solve import Bench, arguments


def test_every_row_is_told_and_every_page_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    given = "--slots 1 --seconds 1,2 --splits 2:1,2 --repeat 1 --compute float32"
    bench = Bench(arguments(given.split()))
    bench.run()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["what"], row["slots"], row["fused"], row.get("splits")) for row in rows] == [
        ("slots", 1, False, None),
        ("slots", 1, True, None),
        ("growth", 2, True, 1),
        ("growth", 2, True, 2),
    ]
    assert all(row["ms"] > 0 for row in rows[:2]) and set(rows[2]["ms"]) == {"1", "2"}
    assert bench.paged.pool.figures().free == bench.pages
