"""The bench of the studio's own part: real engine, processes and messages, and workers that compute nothing."""

from __future__ import annotations

import pytest

from studio.bench.host import arguments, run


@pytest.mark.parametrize("interval", [1, 6])
async def test_every_listener_hears_all_of_its_clip(interval: int) -> None:
    asked = [
        "--streams",
        "3",
        "--plays",
        "5",
        "--clip-s",
        "2.2",
        "--step-ms",
        "0",
        "--interval",
        str(interval),
    ]
    (row,) = await run(arguments(asked))
    assert (row["streams"], row["plays"], row["failures"], row["clip_s"]) == (3, 5, 0, 2.2)
    assert {"cpu_web", "cpu_lm", "cpu_token2wav"} <= row.keys()
