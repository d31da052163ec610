"""Features of a reference clip in batches, against torchaudio's, and how many there are."""

import wave

import numpy as np
import pytest
import torch

from studio.models.prompt import features
from tests.parity.conftest import FIXTURES


def signal(rate_khz: int) -> torch.Tensor:
    with wave.open(str(FIXTURES / f"signal_{rate_khz}k.wav")) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    return torch.from_numpy(samples.astype(np.float32) / 32768)


@pytest.mark.parametrize(("feature", "rate_khz"), [
    (features.prompt_mel, 24), (features.tokenizer_features, 16), (features.speaker_features, 16)])
def test_a_batch_gives_each_clip_its_own_features(feature, rate_khz):
    clip = signal(rate_khz)
    batch = feature(torch.stack([clip, clip.flip(0) * 0.1]))
    torch.testing.assert_close(batch[0], feature(clip), atol=1e-4, rtol=0)
    torch.testing.assert_close(batch[1], feature(clip.flip(0) * 0.1), atol=1e-4, rtol=0)


@pytest.mark.parametrize("from_hz", [44_100, 48_000, 22_050, 16_000, 96_000])
def test_resampling_is_torchaudios(from_hz):
    from torchaudio.functional import resample

    clip = torch.randn(2, 12_345, generator=torch.Generator().manual_seed(0))
    # in float64: torchaudio makes its filter in the clip's precision, ours is always made in float64
    expected = resample(clip.double(), from_hz, 24_000).float()
    torch.testing.assert_close(features.resample(clip, from_hz, 24_000), expected, atol=1e-5, rtol=0)


def test_filter_bank_is_torchaudios():
    from torchaudio.compliance.kaldi import fbank

    clip = 0.1 * torch.randn(16_000, generator=torch.Generator().manual_seed(0))
    expected = fbank(clip[None], num_mel_bins=80, dither=0.0, sample_frequency=16_000)
    torch.testing.assert_close(features.kaldi_fbank(clip), expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("samples", [480, 481, 959, 16_000, 16_159])
def test_frame_counts_follow_from_the_samples(samples):
    clip = torch.zeros(samples)
    assert features.tokenizer_features(clip).shape == (128, samples // 160)
    assert features.prompt_mel(torch.zeros(samples + 400)).shape == ((samples + 400) // 480, 80)
