"""Clicks in a sound: places where the wave jumps as no voice does. Mends nothing."""

from __future__ import annotations

import numpy as np

from studio.speech import Float32

_AROUND_S = 0.005               # what a jump is compared with, on either side
_SELF_SAMPLES = 6               # of it left out, being the click's own
_TIMES_AROUND = 16.0            # no clip of tests/fixtures reaches it with a jump as large as the next
_LEAST_JUMP = 0.05              # smaller ones are glottal pulses of a sharp vocoder, or unheard
_SAME_CLICK_S = 0.02


def clicks_at(samples: Float32, rate_hz: int) -> list[float]:
    """Seconds at which a sound clicks, float32 [n] mono; what louder speech around it covers is not told."""
    if len(samples) < 4 * _SELF_SAMPLES:
        return []
    jump = np.abs(np.diff(samples, 2))
    reach = round(_AROUND_S * rate_hz)
    weights = np.ones(2 * reach + 1)
    weights[reach - _SELF_SAMPLES : reach + _SELF_SAMPLES + 1] = 0
    around = np.sqrt(np.convolve(np.pad(jump**2, reach), weights / weights.sum(), "valid"))
    found = np.flatnonzero((jump > _TIMES_AROUND * (around + 1e-4)) & (jump > _LEAST_JUMP)) + 1
    clicks: list[float] = []
    for second in (found / rate_hz).tolist():
        if not clicks or second - clicks[-1] > _SAME_CLICK_S:
            clicks.append(second)
    return clicks
