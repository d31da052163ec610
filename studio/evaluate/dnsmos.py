"""Speech quality as DNSMOS predicts it: overall, signal, background, P.808. One thread, few windows."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import NamedTuple

import numpy as np

RATE_HZ = 16000
WINDOW_SAMPLES = int(9.01 * RATE_HZ)
# The package moves on by a second; half a window gives the same means within 0.01 at an eighth of the work.
WINDOW_STEP_SAMPLES = WINDOW_SAMPLES // 2

# DNSMOS' published polynomials from raw outputs to opinion scores (not personalised), highest power first.
_SIGNAL = (-0.08397278, 1.22083953, 0.0052439)
_BACKGROUND = (-0.13166888, 1.60915514, -0.39604546)
_OVERALL = (-0.06766283, 1.11546468, 0.04602535)


class Quality(NamedTuple):
    """Predicted mean opinion scores, 1 (bad) to 5 (excellent)."""

    overall: float
    signal: float
    background: float
    p808: float


def windows(samples: np.ndarray) -> list[np.ndarray]:
    """Stretches of 9.01 s that cover the clip; a shorter clip is repeated until it fills one."""
    if len(samples) < WINDOW_SAMPLES:
        samples = np.tile(samples, -(-WINDOW_SAMPLES // len(samples)))[:WINDOW_SAMPLES]
    starts = range(0, len(samples) - WINDOW_SAMPLES + 1, WINDOW_STEP_SAMPLES)
    return [samples[start : start + WINDOW_SAMPLES] for start in starts]


def _log_mel(samples: np.ndarray) -> np.ndarray:
    """The P.808 model's input [T, 120]: mel bands at a 10 ms hop, decibels below the peak scaled to -1..1."""
    import librosa

    mel = librosa.feature.melspectrogram(y=samples, sr=RATE_HZ, n_fft=321, hop_length=160, n_mels=120)
    return ((librosa.power_to_db(mel, ref=np.max) + 40) / 40).T.astype(np.float32)


class QualityJudge:
    """The two DNSMOS networks out of the `speechmos` package, run in sessions of our own with one thread."""

    def __init__(self) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        spec = importlib.util.find_spec("speechmos")
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError("speechmos: install requirements-dev.txt")
        folder = Path(spec.submodule_search_locations[0]) / "dnsmos_models"
        self._main, self._p808 = (
            onnxruntime.InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"])
            for name in ("sig_bak_ovr.onnx", "model_v8.onnx")
        )

    def judge(self, samples: np.ndarray) -> Quality:
        """Score a clip, float32 [N] in [-1, 1] at 16 kHz, N > 0; the mean over its windows."""
        scores = []
        for window in windows(np.clip(samples, -1, 1).astype(np.float32)):
            signal, background, overall = self._main.run(None, {"input_1": window[None]})[0][0]
            p808 = self._p808.run(None, {"input_1": _log_mel(window[:-160])[None]})[0][0][0]
            scores.append(
                (
                    np.polyval(_OVERALL, overall),
                    np.polyval(_SIGNAL, signal),
                    np.polyval(_BACKGROUND, background),
                    p808,
                )
            )
        return Quality(*(float(value) for value in np.mean(scores, axis=0)))
