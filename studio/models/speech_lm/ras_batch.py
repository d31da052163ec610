"""The rows of a batch that want repetition-aware sampling: what each asks for, and where its state lies on the device.

A step of all rows is in ras_draw.py, vLLM's side in ras_processor.py; this imports no vLLM and no model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from studio.models.speech_lm.draw import begun
from studio.models.speech_lm.ras import NO_TOKEN
from studio.models.speech_lm.ras_draw import IN_TORCH, RECORD, RING, WORD, WORDS, Draw, Layout

EXTRA_ARGS_KEY = "ras"
MAX_TOP_K = 200
MAX_WINDOW = 100
MAX_SEED = (1 << 64) - 1
MAX_ID = (1 << 31) - 1


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
    first_end: ids from this on end the speech. None of them is drawn before `least` tokens of the request's own, and
    none but only_end unless that is -1.
    """

    temperature: float = 1.0
    top_p: float = 0.8
    top_k: int = 25
    window: int = 10
    tau: float = 0.1
    drawn: tuple[int, ...] = ()
    seed: int = 0
    first_end: int = MAX_ID
    least: int = 0
    only_end: int = -1

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("temperature", self.temperature, 0.05, 5.0),
            ("top_p", self.top_p, 1e-6, 1.0),
            ("tau", self.tau, 0.0, 1.0),
            ("top_k", self.top_k, 1, MAX_TOP_K),
            ("window", self.window, 0, MAX_WINDOW),
            ("seed", self.seed, 0, MAX_SEED),
            ("first_end", self.first_end, 0, MAX_ID),
            ("least", self.least, 0, MAX_ID),
            ("only_end", self.only_end, -1, MAX_ID),
        ):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
                raise ValueError(f"ras {name} must be from {low} to {high}, not {value!r}")
        for name in ("top_k", "window", "seed", "first_end", "least", "only_end"):
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


def record_of(params: RasParams | None, spoken: Sequence[int]) -> NDArray[np.void]:
    """The RECORD, [1], of a row that has spoken this, or of one that asks for nothing."""
    record, asked = np.zeros(1, RECORD), params or RasParams()
    before = [*asked.drawn, *spoken]
    for name in ("repeats_needed", "window", "temperature", "top_p", "first_end", "only_end"):
        record[name] = getattr(asked, name)
    record["seed"] = begun(np.array([asked.seed], np.uint64))
    record["top_k"] = asked.top_k if params else 0
    record["known"] = len(before)
    record["ends_after"] = len(asked.drawn) + asked.least
    record["ring"] = NO_TOKEN
    for place in range(max(0, len(before) - RING), len(before)):
        record["ring"][0, place % RING] = before[place]
    return record


@dataclass(slots=True)
class _Row:
    """A row's request. spoken: vLLM's own growing list, only read; told: whether the device has its record."""

    record: int
    params: RasParams | None = None
    spoken: list[int] = field(default_factory=list)
    told: bool = False

    def take(self, params: RasParams | None, spoken: list[int]) -> None:
        self.params, self.spoken, self.told = params, spoken if params else [], False


class RasBatch:
    """Draws the token of each row that asks for it by the law of ras.py; other rows pass untouched.

    Owner: vLLM's worker process, one thread. The ring of what a row spoke, its count and its seed lie on the device,
    where each draw adds its own token, so a step brings nothing there and waits for nothing (decision 0025). The host
    counts along and compares with the lengths of vLLM's lists, which are right before their tokens are: one less than
    drawn is a draw that vLLM has thrown away, as of a prompt that is not yet read to its end; anything else is told
    anew. What is told is a record for each row that came; a row that moves takes its record's number along.
    """

    def __init__(self, max_rows: int, pin_memory: bool = False, draw: Draw = IN_TORCH) -> None:
        self._pin_memory, self.draw = pin_memory, draw
        self.records = torch.zeros(max_rows, WORDS, dtype=torch.int64, device=draw.kept_on)
        self._rows = [_Row(number) for number in range(max_rows)]
        self._known = np.zeros(max_rows, np.int64)  # by record: the device's count
        self._count = -1  # rows of the last step; -1 after a change
        self.layout: Layout | None = None  # None if no row asks
        self._lists: list[list[int]] = []  # of these rows, as all below
        self._record_of = np.zeros(0, np.int64)
        self._before = np.zeros(0, np.int64)  # tokens that count as spoken before the list
        self._asks = np.zeros(0, np.int64)

    def change(self, update: BatchChange) -> None:
        """Requests came, went or changed places."""
        rows = self._rows
        for index in update.removed:
            rows[index].take(None, [])
        for index, sampling, _, spoken in update.added:
            rows[index].take(RasParams.of(sampling), spoken)
        for source, target, direction in update.moved:
            rows[source], rows[target] = rows[target], rows[source]
            if direction.name != "SWAP":
                rows[source].take(None, [])
        self._count = -1

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """[B, V] float32 scores to scores of which each row that asks has one left, the token drawn. Called just before
        vLLM's draw, which takes the greatest. The scores given may be overwritten."""
        if self._count != len(logits):
            self._lay_out(len(logits))
        if self.layout is None:
            return logits
        spoken = np.fromiter(map(len, self._lists), np.int64, self._count) + self._before
        known = self._known[self._record_of]
        if not np.array_equal(spoken, known):
            self._correct(spoken, known, self.layout)
        self._known[self._record_of] = spoken + self._asks
        return self.draw.step(logits, self.records, self.layout)

    def _lay_out(self, count: int) -> None:
        """What the rows of the batch are, to the device; with the records that it lacks."""
        rows = self._rows[:count]
        self._count, self.layout = count, None
        asked = [row.params for row in rows if row.params]
        if not asked:
            return
        self._lists = [row.spoken for row in rows]
        self._record_of = np.array([row.record for row in rows], np.int64)
        self._before = np.array([len(row.params.drawn) if row.params else 0 for row in rows], np.int64)
        self._asks = np.array([row.params is not None for row in rows], np.int64)
        self.layout = Layout(
            self._to_device(self._record_of),
            candidates=max(2, *(params.top_k for params in asked)),
            window=max(1, *(params.window for params in asked)),
            all_ask=len(asked) == count,
        )
        self._tell([row for row in rows if not row.told])

    def _correct(self, spoken: np.ndarray, known: np.ndarray, layout: Layout) -> None:
        """Bring the device's counts, or more where that is not enough, to what vLLM's lists say."""
        differing = np.flatnonzero((spoken != known) & (spoken != known - self._asks))
        self._tell([self._rows[at] for at in differing])
        self.records[layout.record_of, WORD["known"]] = self._to_device(spoken)

    def _tell(self, rows: Sequence[_Row]) -> None:
        """Write the records of these rows to the device."""
        if not rows:
            return
        states = np.concatenate([record_of(row.params, row.spoken) for row in rows])
        numbers = np.array([row.record for row in rows], np.int64)
        self.records[self._to_device(numbers)] = self._to_device(states.view(np.int64).reshape(-1, WORDS))
        self._known[numbers] = states["known"]
        for row in rows:
            row.told = True

    def _to_device(self, values: np.ndarray) -> torch.Tensor:
        """A copy that waits for nothing: a new pinned one each time, which torch keeps until it has been read."""
        host = torch.from_numpy(values)
        return (host.pin_memory() if self._pin_memory else host).to(self.draw.kept_on, non_blocking=True)
