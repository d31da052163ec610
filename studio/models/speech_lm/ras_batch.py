"""The rows of a batch that want repetition-aware sampling: what each asks for, what it spoke last, and its draw.

The law itself is in ras.py, the draw in draw.py, vLLM's side in ras_processor.py; this imports no vLLM and no model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from studio.models.speech_lm.draw import drawn, numbers
from studio.models.speech_lm.ras import NO_TOKEN, RasRows, final_log_probs

EXTRA_ARGS_KEY = "ras"
MAX_TOP_K = 200
MAX_WINDOW = 100
MAX_SEED = (1 << 64) - 1


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

    drawn: tokens that count as spoken just before the request's own. seed: its draws are a function of it alone.
    """

    temperature: float = 1.0
    top_p: float = 0.8
    top_k: int = 25
    window: int = 10
    tau: float = 0.1
    drawn: tuple[int, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("temperature", self.temperature, 0.05, 5.0),
            ("top_p", self.top_p, 1e-6, 1.0),
            ("tau", self.tau, 0.0, 1.0),
            ("top_k", self.top_k, 1, MAX_TOP_K),
            ("window", self.window, 0, MAX_WINDOW),
            ("seed", self.seed, 0, MAX_SEED),
        ):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
                raise ValueError(f"ras {name} must be from {low} to {high}, not {value!r}")
        for name in ("top_k", "window", "seed"):
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
        return {
            EXTRA_ARGS_KEY: named | {"drawn": list(self.drawn)}
        }  # a list, as it is after vLLM's own coding

    @classmethod
    def of(cls, sampling: HasExtraArgs) -> RasParams | None:
        """The request's parameters; None if it does not ask for this. Raises ValueError if they are bad."""
        given = (sampling.extra_args or {}).get(EXTRA_ARGS_KEY)
        if given is None:
            return None
        if not isinstance(given, Mapping) or not set(given) <= set(cls.__slots__):
            raise ValueError(f"ras takes {', '.join(cls.__slots__)}, not {given!r}")
        return cls(**{**given, "drawn": tuple(given.get("drawn", ()))})


_ROW = np.dtype([
    ("wanted", np.bool_), ("temperature", np.float32), ("top_p", np.float32), ("top_k", np.float32),
    ("repeats_needed", np.float32), ("window", np.int64), ("seed", np.uint64),
    ("known", np.int64),  # tokens that the ring has seen
    ("ring", np.int64, (MAX_WINDOW,)),
])  # fmt: skip
_ON_DEVICE = ["temperature", "top_p", "top_k", "repeats_needed"]
_NOBODY: list[int] = []


class RasBatch:
    """Draws the token of each row that asks for it by the law of ras.py; other rows pass untouched.

    Owner: vLLM's worker process, one thread. What rows ask for and their windows lie on the host, a record a row: a
           step touches rows that came or moved, and all others in a few array operations. Windows and the numbers to
           draw with reach the device in one small copy; the device is never read.
    """

    def __init__(self, max_rows: int, device: torch.device, pin_memory: bool = False) -> None:
        self._device = device
        self._pin_memory = pin_memory
        self._rows = np.zeros(max_rows, _ROW)
        self._spoken = [_NOBODY] * max_rows  # vLLM's own growing lists, only read here
        self._before: list[tuple[int, ...]] = [()] * max_rows
        for row in range(max_rows):
            self._take(row, None, _NOBODY)
        self._count = 0
        self._settings: RasRows | None = None
        self._wanted: torch.Tensor | None = None  # bool [B, 1], or None if all rows want it
        self._number = torch.zeros(0, 1, dtype=torch.int64)  # [B, 1] of this step's draws
        self._stale = True

    def change(self, update: BatchChange) -> None:
        """Requests came, went or changed places."""
        for index in update.removed:
            self._take(index, None, _NOBODY)
        for index, sampling, _, spoken in update.added:
            self._take(index, RasParams.of(sampling), spoken)
        for source, target, direction in update.moved:
            self._rows[[source, target]] = self._rows[[target, source]]
            self._spoken[source], self._spoken[target] = self._spoken[target], self._spoken[source]
            self._before[source], self._before[target] = self._before[target], self._before[source]
            if direction.name != "SWAP":
                self._take(source, None, _NOBODY)
        self._stale = True

    def _take(self, row: int, params: RasParams | None, spoken: list[int]) -> None:
        """Write a row's record; its ring is filled at the next draw. params: None for a row that asks for nothing."""
        asked = params or RasParams()
        self._rows[row] = (
            params is not None, asked.temperature, asked.top_p, asked.top_k, asked.repeats_needed, asked.window,
            asked.seed, 0, NO_TOKEN,
        )  # fmt: skip
        self._spoken[row] = spoken if params else _NOBODY
        self._before[row] = asked.drawn

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """[B, V] scores to scores of which each row has one left, the token drawn. Called just before vLLM's draw,
        which takes the greatest."""
        law = self.law(logits)
        if law is None:
            return logits
        token = drawn(law, self._number)
        only = torch.full_like(law, float("-inf")).scatter_(1, token, 0.0)
        return only if self._wanted is None else torch.where(self._wanted, only, logits)

    def law(self, logits: torch.Tensor) -> torch.Tensor | None:
        """[B, V] scores to [B, V] log-probabilities that each row is to be drawn by; None if no row asks for it."""
        if self._stale or self._count != logits.shape[0]:
            self._lay_out(logits.shape[0])
        if self._settings is None:
            return None
        rows = self._rows[: self._count]
        self._grow(rows)
        width = max(1, int(rows["window"].max()))
        # A new one each time, which torch keeps until its copy has ended: the next step is laid out meanwhile.
        staged = torch.empty((self._count, width + 1), dtype=torch.int64, pin_memory=self._pin_memory)
        staged.numpy()[:, :width] = rows["ring"][:, :width]
        staged.numpy()[:, width] = numbers(rows["seed"], rows["known"])
        on_device = staged.to(self._device, non_blocking=True)
        self._number = on_device[:, width:]
        return final_log_probs(logits.float(), on_device[:, :width], self._settings)

    def _lay_out(self, count: int) -> None:
        """What the rows of the batch ask for, to the device."""
        self._stale, self._count = False, count
        rows = self._rows[:count]
        self._settings = self._wanted = None
        if not rows["wanted"].any():
            return
        asked = self._to_device(np.stack([rows[name] for name in _ON_DEVICE]))
        columns = {name: asked[i].unsqueeze(1) for i, name in enumerate(_ON_DEVICE)}
        self._settings = RasRows(**columns, candidates=max(2, int(rows["top_k"].max())))
        if not rows["wanted"].all():
            self._wanted = self._to_device(rows["wanted"][:, None].copy())

    def _to_device(self, values: np.ndarray) -> torch.Tensor:
        host = torch.from_numpy(values)
        return (host.pin_memory() if self._pin_memory else host).to(self._device, non_blocking=True)

    def _grow(self, rows: np.ndarray) -> None:
        """Bring the rings up to date with the lists that vLLM has appended to."""
        spoken = self._spoken[: self._count]
        own = np.fromiter(map(len, spoken), np.int64, self._count)
        lengths = own + np.fromiter(map(len, self._before[: self._count]), np.int64, self._count)
        grown = lengths - rows["known"]
        is_one = (grown == 1) & (own > 0)
        one_more = np.flatnonzero(is_one & (rows["window"] > 0))
        if one_more.size:
            last = np.array([tokens[-1] if tokens else NO_TOKEN for tokens in spoken], np.int64)
            places = rows["known"][one_more] % rows["window"][one_more]
            rows["ring"][one_more, places] = last[one_more]
        for row in np.flatnonzero((grown != 0) & ~is_one):  # resumed, or a turn after others
            self._refill(rows[row], [*self._before[row], *spoken[row]])
        rows["known"] = lengths

    @staticmethod
    def _refill(row: np.void, spoken: list[int]) -> None:
        window = int(row["window"])
        row["ring"] = NO_TOKEN
        for place in range(max(0, len(spoken) - window), len(spoken)):
            row["ring"][place % window] = spoken[place]
