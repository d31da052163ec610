"""How alike two voices are, by Resemblyzer's encoder, and a clip's median pitch. Torch, one thread."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

JUDGE_RATE_HZ = 16000


class VoiceJudge:
    """Embeds clips; two are as similar as the inner product of their unit embeddings, 1 for the same."""

    def __init__(self) -> None:
        import torch
        from resemblyzer import VoiceEncoder

        torch.set_num_threads(1)
        self._encoder = VoiceEncoder("cpu", verbose=False)

    def embed(self, samples: np.ndarray) -> np.ndarray:
        """Unit embedding float32 [256] of a clip, float32 [N] at 16 kHz, silences trimmed first."""
        from resemblyzer import preprocess_wav

        trimmed = preprocess_wav(samples, source_sr=JUDGE_RATE_HZ)
        if len(trimmed) < JUDGE_RATE_HZ // 5:  # nothing but silence left: judge the clip as it is
            trimmed = samples
        return self._encoder.embed_utterance(trimmed)

    def compare(self, samples: np.ndarray, prompts: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Similarity of a clip to each prompt's embedding."""
        embedding = self.embed(samples)
        return {name: float(embedding @ prompt) for name, prompt in prompts.items()}


def median_pitch_hz(samples: np.ndarray) -> float | None:
    """Median F0 of the voiced frames of a clip, float32 [N] at 16 kHz; None if nothing is voiced."""
    import pyworld

    pitch, _ = pyworld.harvest(samples.astype(np.float64), JUDGE_RATE_HZ, f0_floor=60.0, f0_ceil=500.0)
    voiced = pitch[pitch > 0]
    return float(np.median(voiced)) if len(voiced) else None
