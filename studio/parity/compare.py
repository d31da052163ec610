"""What a fixture asks of an array, and whether ours keeps to it: one line an array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from studio.parity.fixtures import Fixtures

Verdict = Literal["pass", "FAIL", "missing", "aside"]
"""aside: what ours is not meant to do; the detail says why."""


@dataclass(frozen=True, slots=True)
class Line:
    """One array, or one case of a fixture without arrays, held against ours."""

    fixture: str
    array: str
    verdict: Verdict
    detail: str

    def __str__(self) -> str:
        return f"{self.verdict:7} {self.fixture:24} {self.array:32} {self.detail}".rstrip()


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The largest absolute error allowed, or the largest ratio of the error's rms to the expected rms."""

    allowed: float
    relative: bool = False


def compare(fixtures: Fixtures, name: str, got: Mapping[str, Any]) -> Iterator[Line]:
    """A line for each array that the fixture expects; one that ours does not give is missing."""
    meta = fixtures.meta(name)
    for key, expected in fixtures.arrays(name, "out_").items():
        if key not in got:
            yield Line(name, key, "missing", "our code gives no such array")
        elif tolerance := tolerance_of(meta, key, fixtures.slack):
            yield near(name, key, got[key], expected, tolerance, fixtures.least_snr_db)
        else:
            yield Line(name, key, "missing", "the fixture states no tolerance")


def equal(name: str, item: str, got: object, expected: object) -> Line:
    """A line for something that must be the same."""
    if got == expected:
        return Line(name, item, "pass", "equal")
    return Line(name, item, "FAIL", f"{got!r}, expected {expected!r}")


def near(
    name: str, item: str, got: Any, expected: Any, tolerance: Tolerance, least_snr_db: float | None = None
) -> Line:
    """A line for an array; whole numbers must be equal, others within the tolerance, or far enough above their error.

    An array of zeros has no power to compare with, so it is held by its tolerance always.
    """
    ours, theirs = _plain(got), _plain(expected)
    if ours.shape != theirs.shape:
        return Line(name, item, "FAIL", f"shape {ours.shape}, expected {theirs.shape}")
    if theirs.dtype.kind in "iub":
        unequal = int((ours != theirs).sum())
        detail = f"{unequal} of {theirs.size} differ" if unequal else "equal"
        return Line(name, item, "FAIL" if unequal else "pass", detail)
    wide = theirs.astype(np.float64)
    difference = ours.astype(np.float64) - wide
    noise, power = float(np.square(difference).mean()), float(np.square(wide).mean())
    if tolerance.relative:
        error, kind = (noise / (power + 1e-60)) ** 0.5, "rms ratio"
    else:
        error, kind = float(np.abs(difference).max(initial=0)), "largest"
    snr_db = 10 * float(np.log10(power / noise)) if noise > 0 and power > 0 else None
    snr = "" if snr_db is None else f"  SNR {snr_db:.0f} dB"
    if least_snr_db is None or snr_db is None:
        is_near = error <= tolerance.allowed  # not a number is no pass
        detail = f"error {error:.1e}  allowed {tolerance.allowed:.0e}  {kind}{snr}"
    else:
        is_near = snr_db >= least_snr_db
        detail = f"error {error:.1e}  {kind}{snr}  at least {least_snr_db:g} dB"
    return Line(name, item, "pass" if is_near else "FAIL", detail)


def tolerance_of(meta: Mapping[str, Any], key: str, slack: float = 1.0) -> Tolerance | None:
    """What a fixture's description allows an array; a relative tolerance counts before an absolute one."""
    for table, relative in (("tolerance_rel_rms", True), ("tolerance_max_abs", False)):
        if (allowed := _entry(meta.get(table) or {}, key)) is not None:
            return Tolerance(allowed * slack, relative)
    return None


def _entry(table: Mapping[str, float], key: str) -> float | None:
    """The exact name, then the longest PREFIX*, then "default"."""
    if key in table:
        return table[key]
    prefixes = [p for p in table if p.endswith("*") and key.startswith(p[:-1])]
    return table[max(prefixes, key=len)] if prefixes else table.get("default")


def _plain(value: Any) -> NDArray[Any]:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
