"""One token a row, drawn by the row's own seed: its n-th token is the same whatever is drawn beside it or was before.

A draw needs one number, which is a function of seed and place: nothing is kept between draws, a row that moves or is
computed again draws the same, and a thousand seeds cost what one does. A generator for each request, as vLLM has, must
be asked row by row in a Python loop, which at 128 rows takes longer than the rest of the sampling.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

BITS = 53
"""Of each number: what float64 holds exactly."""
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""SplitMix64's constants, 64 bits without a sign."""


def begun(seeds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """What `numbers` takes of each seed, so that seeds which are alike are not."""
    return _mix(seeds)


def numbers(seeds: NDArray[np.uint64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Whole numbers from 0 to 2^53 - 1, equally likely and independent for different pairs. All [B].

    SplitMix64 (Steele, Lea and Flood, 2014), begun at the seed, which is one of `begun`, and asked for its place-th.
    """
    mixed = _mix(seeds + np.uint64(STEP) * (places.astype(np.uint64) + np.uint64(1)))
    return (mixed >> np.uint64(64 - BITS)).astype(np.int64)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(FIRST)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(SECOND)
    return x ^ (x >> np.uint64(31))


def drawn(log_probs: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """The token of each row where the sum of the probabilities before it passes the number. No value is read back.

    Args:    log_probs: float32 [B, V], need not sum to 1; number: int64 [B, 1] of `numbers`.
    Returns: int64 [B, 1], never a token of probability 0.
    """
    # float64: the sum of thousands of float32 would lose what rare tokens have.
    passed = log_probs.softmax(dim=1, dtype=torch.float64).cumsum(dim=1)
    # The product stays below the last sum for every number below 2^53; scores that are no numbers must not point
    # outside of the row, which would end a GPU's process.
    token = torch.searchsorted(passed, number.double() * 2.0**-BITS * passed[:, -1:], right=True)
    return token.clamp_(max=log_probs.shape[1] - 1)
