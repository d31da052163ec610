"""How long a hop takes by its place in a long speech, and how long reading the cached keys alone would take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

import numpy as np

from studio.engine.engine import Engine
from studio.speech import (
    BLOCK_TOKENS,
    MEL_FRAMES_PER_TOKEN,
    TOKEN_RATE_HZ,
    SpokenRow,
    VoicePrompt,
    VoicingRequest,
)

READ_BYTES_PER_S = 4.3e12
"""What one H200 copies a second, reading and writing counted: the least time for keys that must be read."""
EDGE_HOPS = 5
"""Hops of each end that are compared; the very first, with which the row is opened, and the last are left out."""


def longest_s(pool_bytes: int, frame_bytes: int, streams: int, most_s: int) -> int:
    """Whole seconds that so many streams may speak within nine tenths of the pool; 0 bytes: no bound is known."""
    a_second = streams * frame_bytes * MEL_FRAMES_PER_TOKEN * TOKEN_RATE_HZ
    return most_s if not pool_bytes or not a_second else min(most_s, int(0.9 * pool_bytes / a_second))


async def hop_times(
    engine: Engine, voice: VoicePrompt, codes: int, streams: int, seconds: int
) -> list[float]:
    """Seconds of each hop of one block, the median of all streams, which speak given tokens at once."""
    draw = np.random.RandomState(0)

    async def arrivals(number: int) -> list[float]:
        row = SpokenRow(draw.randint(0, codes, seconds * TOKEN_RATE_HZ).tolist())
        request = VoicingRequest((row,), voice, seed=number, client=f"growth {number}")
        async with await engine.voice(request) as stream:
            return [time.monotonic() async for _ in stream]

    came = await asyncio.gather(*(arrivals(number) for number in range(streams)))
    hops = zip(*([b - a for a, b in pairwise(times)] for times in came), strict=False)
    return [median(hop) for hop in hops]


def growth_row(
    hops_s: Sequence[float], streams: int, prompt_frames: int, frame_bytes: int
) -> dict[str, object]:
    """hops_s: of each block of 1 s after the first. frame_bytes: what a mel frame keeps, of all steps and branches."""
    if len(hops_s) < 2 * EDGE_HOPS + 1:
        return {"streams": streams, "hops": len(hops_s)}
    first_s, last_s = fmean(hops_s[:EDGE_HOPS]), fmean(hops_s[-EDGE_HOPS - 1 : -1])

    def read_s(block: int) -> float:
        frames = prompt_frames + block * BLOCK_TOKENS * MEL_FRAMES_PER_TOKEN
        return streams * frames * frame_bytes / READ_BYTES_PER_S

    return {
        "streams": streams,
        "hops": len(hops_s),
        "first_ms": round(1000 * first_s, 2),
        "last_ms": round(1000 * last_s, 2),
        "last_over_first": round(last_s / first_s, 3),
        "read_first_ms": round(1000 * read_s(EDGE_HOPS // 2 + 1), 3),
        "read_last_ms": round(1000 * read_s(len(hops_s) - EDGE_HOPS // 2 - 1), 3),
        "ms": [round(1000 * hop, 2) for hop in hops_s],
    }
