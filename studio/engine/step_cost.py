"""What a step of a model costs by how much it serves, fitted to the steps of lately. Predicts nothing by itself."""

from __future__ import annotations

from dataclasses import dataclass

from studio.protocols import Clock

KEPT = 0.99
"""Of the weight of what was measured, with each further step: about the last hundred steps count."""
PRIOR = 0.01
"""Weight of the guess how a step grows; it counts only while all steps served equally much."""


@dataclass(frozen=True, slots=True)
class CostLine:
    """Seconds of a step: fixed_s, and each_s for each of what it serves."""

    fixed_s: float
    each_s: float

    def seconds(self, amount: float) -> float:
        return self.fixed_s + self.each_s * amount


class StepCost:
    """A line through steps, weighted towards the latest. Owner: the engine's event loop."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """As if nothing had been measured: another process or other settings cost something else."""
        self._weight = self._amounts = self._seconds = self._squares = self._products = 0.0

    def add(self, amount: float, seconds: float, steps: float = 1.0) -> None:
        """So many steps that each served an amount and took so long."""
        kept = KEPT**steps
        self._weight = kept * self._weight + steps
        self._amounts = kept * self._amounts + steps * amount
        self._seconds = kept * self._seconds + steps * seconds
        self._squares = kept * self._squares + steps * amount * amount
        self._products = kept * self._products + steps * amount * seconds

    def line(self, shared: float) -> CostLine | None:
        """None before the first step. shared: the guessed part of a step that costs the same for any amount."""
        if not self._weight or not self._amounts:
            return None
        amount, seconds = self._amounts / self._weight, self._seconds / self._weight
        spread = max(0.0, self._squares / self._weight - amount**2)
        together = self._products / self._weight - amount * seconds
        most = seconds / amount
        prior = PRIOR * amount**2
        each = (together + prior * (1 - shared) * most) / (spread + prior)
        each = min(max(each, 0.0), most)
        return CostLine(seconds - each * amount, each)


class LmMeter:
    """Steps of the speech LM as they look from outside: tokens that came while so many rows ran."""

    def __init__(self, cost: StepCost, clock: Clock) -> None:
        self._cost = cost
        self._clock = clock
        self._rows = self._tokens = 0
        self._since_s = clock()

    def came(self, tokens: int) -> None:
        self._tokens += tokens

    def rows(self, count: int) -> None:
        """So many rows run from now on."""
        now_s = self._clock()
        if self._rows and self._tokens:
            steps = self._tokens / self._rows
            self._cost.add(self._rows, (now_s - self._since_s) / steps, steps)
        self._rows, self._tokens, self._since_s = count, 0, now_s


@dataclass(frozen=True, slots=True)
class Costs:
    """Of a step: lm by rows, token2wav by speech tokens of all its rows; None before any was measured."""

    lm: CostLine | None = None
    token2wav: CostLine | None = None
