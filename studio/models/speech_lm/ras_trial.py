"""Whether two ways to draw give the same tokens: rows of many kinds, each with its parameters, step after step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import torch

from studio.models.speech_lm.ras_batch import MAX_TOP_K, MAX_WINDOW, RasParams, record_of
from studio.models.speech_lm.ras_draw import IN_TORCH, WORD, WORDS, Draw, Layout

ASKED = (
    RasParams(),
    RasParams(window=0, first_end=20, least=9),
    RasParams(temperature=0.05, top_p=0.95, first_end=2, only_end=4),
    RasParams(temperature=5.0, top_p=1.0, top_k=60, window=MAX_WINDOW, tau=0.02),
    RasParams(top_k=1, top_p=0.5, seed=1 << 63),
    RasParams(top_p=1.0, top_k=MAX_TOP_K, window=7, tau=0.5),
    None,
    RasParams(temperature=0.7, top_p=0.1, top_k=2, drawn=tuple(range(40, 90))),
)
"""What rows ask for, over and over; None is a row that passes untouched."""


def records_of(count: int) -> torch.Tensor:
    """Records of so many rows, int64 [B, WORDS]; the seed of each is its own."""
    asked = itertools.islice(itertools.cycle(ASKED), count)
    records = np.concatenate([record_of(params, range(row % 5)) for row, params in enumerate(asked)])
    records["seed"] += np.arange(count, dtype=np.uint64)
    return torch.from_numpy(records.view(np.int64).reshape(count, WORDS))


def scores_of(rows: int, width: int, seed: int) -> torch.Tensor:
    """float32 [B, V]: drawn at random, and rows in which many are equal, masked, or all but one or two masked."""
    scores = 3 * torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))
    kind = (torch.arange(rows) + seed) % 7
    scores[kind == 1] = scores[kind == 1].round()  # equal scores at the end of the top_k
    scores[kind == 2, width // 2 :] = float("-inf")
    scores[kind == 3] -= 60
    scores[kind == 3, 3] = 0.0  # so likely that 1 - p is 0
    scores[kind == 4, 1:] = float("-inf")
    scores[kind == 5, 2:] = float("-inf")
    scores[kind == 6] = -0.0
    return scores


def draws(draw: Draw, rows: int, width: int, steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """What this way and torch leave of the scores at each step, [B, V]. Both go on from what torch had drawn.

    Raises ValueError if they kept something else of rows for which they drew the same.
    """
    records, order = records_of(rows), torch.arange(rows).flip(0)
    asks = records[order, WORD["top_k"]] > 0
    layout = Layout(order, MAX_TOP_K, MAX_WINDOW, all_ask=False)
    there = layout._replace(record_of=order.to(draw.kept_on))
    for step in range(steps):
        scores, kept = scores_of(rows, width, step), records.to(draw.kept_on, copy=True)
        given = draw.step(scores.to(draw.kept_on, copy=True), kept, there).cpu()
        wanted = IN_TORCH.step(scores, records, layout)
        same = order[asks & (given == wanted).all(1)]
        if not torch.equal(kept.cpu()[same], records[same]):
            raise ValueError(f"step {step}: the same was drawn, but something else kept")
        yield given, wanted


def disagreements(draw: Draw, width: int, rows: int = 16, steps: int = 8) -> tuple[int, int]:
    """Rows that differ, and all; rounding alone moves a draw in some 10,000."""
    differing = [int((given != wanted).any(1).sum()) for given, wanted in draws(draw, rows, width, steps)]
    return sum(differing), rows * len(differing)
