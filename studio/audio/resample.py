"""Resampling of whole clips with soxr; streams are never resampled here."""

import numpy as np
import soxr

from studio.speech import Float32

COMMON_RATES_HZ = (16_000, 22_050, 24_000, 32_000, 44_100, 48_000)


def resample(samples: Float32, from_hz: int, to_hz: int) -> Float32:
    """float32 [n] or [n, channels] to another rate, band-limited; [round(n to / from)]."""
    if from_hz == to_hz:
        return samples
    return np.asarray(soxr.resample(samples, from_hz, to_hz, quality="HQ"), dtype=np.float32)


def to_common_rate(samples: Float32, rate_hz: int) -> tuple[Float32, int]:
    """Bring an unusual rate to 24 or 48 kHz, whichever loses nothing a voice has.

    The models' exact resampler builds a filter for each phase of the ratio, and an odd rate from a
    hostile header (44,101 Hz) would make that gigabytes.
    """
    if rate_hz in COMMON_RATES_HZ:
        return samples, rate_hz
    wanted = 24_000 if rate_hz <= 24_000 else 48_000
    return resample(samples, rate_hz, wanted), wanted
