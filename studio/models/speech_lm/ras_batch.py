"""The rows of a batch that want repetition-aware sampling: what each asks for, and what it spoke last.

The law itself is in ras.py, vLLM's side of it in ras_processor.py; this imports neither vLLM nor a model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from studio.models.speech_lm.ras import NO_TOKEN, RasRows, final_log_probs

EXTRA_ARGS_KEY = "ras"
MAX_TOP_K = 200
MAX_WINDOW = 100


class HasExtraArgs(Protocol):
    """vLLM's SamplingParams, as far as it matters here."""

    extra_args: dict[str, Any] | None


class BatchChange(Protocol):
    """vLLM's BatchUpdate: to be taken in this order."""

    removed: Sequence[int]
    added: Sequence[tuple[int, Any, Any, list[int]]]
    moved: Sequence[tuple[int, int, Any]]


@dataclass(frozen=True, slots=True)
class RasParams:
    """One request's sampling. tau: share of the window that a token must fill to be drawn again.

    drawn: tokens that count as spoken just before the request's own.
    """

    temperature: float = 1.0
    top_p: float = 0.8
    top_k: int = 25
    window: int = 10
    tau: float = 0.1
    drawn: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("temperature", self.temperature, 0.05, 5.0),
            ("top_p", self.top_p, 1e-6, 1.0),
            ("tau", self.tau, 0.0, 1.0),
            ("top_k", self.top_k, 1, MAX_TOP_K),
            ("window", self.window, 0, MAX_WINDOW),
        ):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
                raise ValueError(f"ras {name} must be from {low} to {high}, not {value!r}")
        for name in ("top_k", "window"):
            if int(getattr(self, name)) != getattr(self, name):
                raise ValueError(f"ras {name} must be a whole number, not {getattr(self, name)!r}")
        if len(self.drawn) > MAX_WINDOW or not all(isinstance(token, int) for token in self.drawn):
            raise ValueError(f"ras drawn must be at most {MAX_WINDOW} whole numbers")

    @property
    def repeats_needed(self) -> int:
        return max(1, math.ceil(self.window * self.tau))

    def extra_args(self) -> dict[str, Any]:
        """What SamplingParams.extra_args carries to the engine."""
        named = {name: getattr(self, name) for name in self.__slots__}
        return {EXTRA_ARGS_KEY: named | {"drawn": list(self.drawn)}}  # a list, as it is after vLLM's own coding

    @classmethod
    def of(cls, sampling: HasExtraArgs) -> RasParams | None:
        """The request's parameters; None if it does not ask for this. Raises ValueError if they are bad."""
        given = (sampling.extra_args or {}).get(EXTRA_ARGS_KEY)
        if given is None:
            return None
        if not isinstance(given, Mapping) or not set(given) <= set(cls.__slots__):
            raise ValueError(f"ras takes {', '.join(cls.__slots__)}, not {given!r}")
        return cls(**{**given, "drawn": tuple(given.get("drawn", ()))})


@dataclass(slots=True)
class _Row:
    """A request in the batch: what it asks for, and vLLM's own growing list of its tokens, only read here."""

    params: RasParams | None
    spoken: list[int]


class RasBatch:
    """Replaces the scores of each row that asks for it by the law of ras.py; other rows pass untouched.

    Owner: vLLM's worker process, one thread. The windows live on the host as a ring a row, grown by one token
           a step in a few array operations, and reach the device in one small copy; the device is never read.
    """

    def __init__(self, max_rows: int, device: torch.device, pin_memory: bool = False) -> None:
        self._device = device
        self._ring_host = torch.full(
            (max_rows, MAX_WINDOW), NO_TOKEN, dtype=torch.int64, pin_memory=pin_memory
        )
        self._ring = self._ring_host.numpy()
        self._rows: dict[int, _Row] = {}
        self._order: list[_Row | None] = []
        self._known = np.zeros(0, np.int64)  # tokens of each row that its ring holds
        self._windows = np.ones(0, np.int64)
        self._settings: RasRows | None = None
        self._wanted: torch.Tensor | None = None  # bool [B, 1], or None if all rows want it
        self._stale = False

    def change(self, update: BatchChange) -> None:
        """Requests came, went or changed places; read again at the next apply."""
        for index in update.removed:
            self._rows.pop(index, None)
        for index, sampling, _, spoken in update.added:
            self._rows[index] = _Row(RasParams.of(sampling), spoken)
        for source, target, direction in update.moved:
            moved, replaced = self._rows.pop(source, None), self._rows.pop(target, None)
            if moved is not None:
                self._rows[target] = moved
            if direction.name == "SWAP" and replaced is not None:
                self._rows[source] = replaced
        self._stale = True

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """[B, V] scores to [B, V] log-probabilities of the law. Called just before each draw."""
        if self._stale or len(self._order) != logits.shape[0]:
            self._take_rows(logits.shape[0])
        if self._settings is None:
            return logits
        law = final_log_probs(logits.float(), self._window_tensor(), self._settings)
        return law if self._wanted is None else torch.where(self._wanted, law, logits)

    def _take_rows(self, count: int) -> None:
        """Lay out the batch anew: per-row settings to the device, every ring to be filled from its tokens."""
        self._stale = False
        rows = [self._rows.get(i) for i in range(count)]
        self._order = [row if row is not None and row.params is not None else None for row in rows]
        if not any(self._order):
            self._settings = None
            return
        neutral = RasParams()
        params = [row.params or neutral if row else neutral for row in self._order]
        self._windows = np.array([p.window for p in params], np.int64)
        self._known = np.zeros(count, np.int64)
        self._ring[:count] = NO_TOKEN
        self._settings = RasRows(
            temperature=self._column([p.temperature for p in params], torch.float32),
            top_p=self._column([p.top_p for p in params], torch.float32),
            top_k=self._column([p.top_k for p in params], torch.int64),
            repeats_needed=self._column([p.repeats_needed for p in params], torch.int64),
            candidates=max(2, *(p.top_k for p in params)),
        )
        wanted = [row is not None for row in self._order]
        self._wanted = None if all(wanted) else self._column(wanted, torch.bool)

    def _column(self, values: list[Any], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype).unsqueeze(1).to(self._device, non_blocking=True)

    def _window_tensor(self) -> torch.Tensor:
        """int64 [B, W] of the last spoken tokens of each row, brought up to date."""
        spoken = [row.spoken if row else () for row in self._order]
        before = [row.params.drawn if row and row.params else () for row in self._order]
        lengths = np.fromiter(map(len, spoken), np.int64, len(spoken))
        lengths += np.fromiter(map(len, before), np.int64, len(before))
        grown = lengths - self._known
        known = self._known > 0
        one_more = np.flatnonzero((grown == 1) & known & (self._windows > 0))
        if one_more.size:
            last = np.array([tokens[-1] if tokens else NO_TOKEN for tokens in spoken], np.int64)
            self._ring[one_more, self._known[one_more] % self._windows[one_more]] = last[one_more]
        for row in np.flatnonzero((grown != 0) & ~((grown == 1) & known)):  # new in the batch, or resumed
            self._refill(int(row), [*before[row], *spoken[row]])
        self._known = lengths
        count, width = len(spoken), max(1, int(self._windows.max()))
        return self._ring_host[:count, :width].to(self._device, non_blocking=True)

    def _refill(self, row: int, spoken: list[int]) -> None:
        window = int(self._windows[row])
        self._ring[row] = NO_TOKEN
        for place in range(max(0, len(spoken) - window), len(spoken)):
            self._ring[row, place % window] = spoken[place]
