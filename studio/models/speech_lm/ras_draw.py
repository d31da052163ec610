"""One step of repetition-aware sampling over rows whose state is kept from draw to draw: law, draw, and the token kept.

The law is in ras.py, the draw in draw.py; ras_triton.py says the same in one kernel. A row's state is a record of int64
words, in which what is no int64 lies by its bits, so that it comes to a device in one copy.
Axes: R records, B rows of the batch, V head width.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from studio.models.speech_lm.draw import drawn, numbers
from studio.models.speech_lm.ras import NO_TOKEN, RasRows, final_log_probs

log = logging.getLogger(__name__)

RING = 128
"""Places of a ring: the n-th token that counts as spoken lies at n modulo this. More than the longest window, so that a
token whose draw vLLM throws away hides none of the window."""

RECORD = np.dtype([
    ("seed", "<u8"),  # as `begun`
    ("top_k", "<i8"),  # 0 for a row that asks for nothing
    ("repeats_needed", "<i8"), ("window", "<i8"),
    ("known", "<i8"),  # tokens spoken so far: the place of the next
    ("temperature", "<f4"), ("top_p", "<f4"),
    ("first_end", "<i8"),  # ids from this on are ends, of which none is drawn
    ("ends_after", "<i8"),  # ... before so many are known
    ("only_end", "<i8"),  # ... and none but this one, unless it is -1
    ("ring", "<i8", (RING,)),
])  # fmt: skip
WORDS = RECORD.itemsize // 8
WORD = {name: RECORD.fields[name][1] // 8 for name in RECORD.names}  # type: ignore[index, union-attr]
"""Where a field lies; the temperature is the lower half of its word, top_p the upper one."""


class Layout(NamedTuple):
    """Rows of a batch. record_of: int64 [B], where the records are; candidates, window: the largest of all rows that
    ask, so that shapes need no read."""

    record_of: torch.Tensor
    candidates: int
    window: int
    all_ask: bool


class Draw(NamedTuple):
    """A way to draw, and where it keeps the records.

    step: logits float32 [B, V], records int64 [R, WORDS], layout -> float32 [B, V], in which one score is left of each
          row that asks, 0 at the token drawn and -inf else. The token is written into the row's ring, and its place
          counted. It may overwrite the logits.
    """

    step: Callable[[torch.Tensor, torch.Tensor, Layout], torch.Tensor]
    kept_on: torch.device


def step_in_torch(logits: torch.Tensor, records: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The step of `IN_TORCH`, whose records lie on the host, where a few numbers cost numpy a fifth of what they cost
    torch. With scores on a GPU it waits for them."""

    def given(values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values).to(logits.device)

    kept, record_of = records.numpy().view(RECORD)[:, 0], layout.record_of.numpy()
    rows = kept[record_of]
    known, back = rows["known"], np.arange(1, layout.window + 1)
    window = rows["ring"][np.arange(len(rows))[:, None], (known[:, None] - back) % RING]
    window[back > np.minimum(known, rows["window"])[:, None]] = NO_TOKEN
    names = ("temperature", "top_p", "top_k", "repeats_needed")
    for row in np.flatnonzero((rows["top_k"] > 0) & ((known < rows["ends_after"]) | (rows["only_end"] >= 0))):
        _bar_ends(logits[row], rows[row])
    # Rows that ask for nothing have no candidates: what they get is no law, and is not used.
    temperature, top_p, top_k, needed = (given(rows[name][:, None]) for name in names)
    asked = RasRows(temperature, top_p, top_k, needed, layout.candidates)
    law = final_log_probs(logits, given(window), asked)
    token = drawn(law, given(numbers(rows["seed"], known)[:, None]))
    kept["ring"][record_of, known % RING] = token[:, 0].cpu().numpy()
    kept["known"][record_of] += 1
    only = torch.full_like(law, float("-inf")).scatter_(1, token, 0.0)
    return only if layout.all_ask else torch.where(top_k > 0, only, logits)


def _bar_ends(scores: torch.Tensor, row: np.void) -> None:
    """Take the ends that may not be drawn yet out of [V] scores. row: a RECORD that bars some."""
    first, only = int(row["first_end"]), int(row["only_end"])
    kept = scores[only : only + 1].clone() if only >= 0 and row["known"] >= row["ends_after"] else None
    scores[first:] = float("-inf")
    if kept is not None:
        scores[only : only + 1] = kept


IN_TORCH = Draw(step_in_torch, torch.device("cpu"))
"""For any device, and what the kernel is held against."""


def best_draw(device: torch.device, width: int) -> Draw:
    """The kernel on a CUDA device where it runs and draws what torch draws; torch elsewhere.

    width: of the scores that it is built and tried for, here, so that no request finds a kernel that fails.
    """
    if device.type != "cuda":
        return IN_TORCH
    try:
        from studio.models.speech_lm.ras_trial import disagreements

        kernel = _kernel(device)
        differing, drawn_rows = disagreements(kernel, width)
        if differing > drawn_rows / 50:
            raise RuntimeError(f"{differing} of {drawn_rows} draws differ from torch's")
    except Exception as error:
        log.warning("RAS is drawn without its kernel, slower: %s: %s", type(error).__name__, error)
        return IN_TORCH
    return kernel


def _kernel(device: torch.device) -> Draw:
    from studio.models.speech_lm.ras_triton import step_in_one_kernel

    return Draw(step_in_one_kernel, device)
