"""How loud speech is, by ITU-R BS.1770, and the gain that makes several sounds equally loud. Changes no sound."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.speech import Float32

SILENT_LUFS = -70.0
"""The gate of BS.1770: nothing below it counts as sound."""
PEAK_DBFS = -1.0
"""No sample of a matched sound goes beyond this."""
_BLOCK_S = 0.4


@dataclass(frozen=True, slots=True)
class Loudness:
    """Of one sound: integrated loudness, SILENT_LUFS at least, and its highest sample."""

    lufs: float
    peak_dbfs: float


def warm() -> None:
    """Load what the first sound would wait for, about a second."""
    import pyloudnorm  # noqa: F401


def loudness_of(samples: Float32, sample_rate_hz: int) -> Loudness:
    """float32 [n] mono of any length; a sound shorter than one block of the measure is repeated to fill it."""
    peak = float(np.abs(samples).max(initial=0.0))
    peak_dbfs = 20 * np.log10(max(peak, 1e-6))
    if peak == 0.0:
        return Loudness(SILENT_LUFS, peak_dbfs)
    needed = int(_BLOCK_S * sample_rate_hz) + 1
    if len(samples) < needed:
        samples = np.resize(samples, needed)
    import pyloudnorm  # brings scipy's filters, which the page need not wait for when the studio starts

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # log of nothing, when every block is below the gate
        lufs = pyloudnorm.Meter(sample_rate_hz).integrated_loudness(samples.astype(np.float64))
    return Loudness(max(float(lufs), SILENT_LUFS) if np.isfinite(lufs) else SILENT_LUFS, float(peak_dbfs))


def matching_gains_db(sounds: Sequence[Loudness], target_lufs: float) -> list[float]:
    """A gain for each sound that makes all equally loud: at the target, or lower where a peak would not fit.

    Silence is left as it is.
    """
    heard = [sound for sound in sounds if sound.lufs > SILENT_LUFS]
    reachable = [sound.lufs + PEAK_DBFS - sound.peak_dbfs for sound in heard]
    common_lufs = min([target_lufs, *reachable])
    return [common_lufs - sound.lufs if sound.lufs > SILENT_LUFS else 0.0 for sound in sounds]
