"""What the three readers of a reference clip see: prompt mel, speech tokenizer features, speaker features.

Plain torch on any device; knows no model and no file. Axes: ... any leading batch of equally long clips,
n samples, T frames.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

# torchaudio's defaults, which upstream reads clips with
_RESAMPLE_ZEROS, _RESAMPLE_ROLLOFF = 6, 0.99


@lru_cache(maxsize=16)
def _resampling_kernel(from_hz: int, to_hz: int) -> tuple[Tensor, int]:
    """Hann-windowed sinc, one row for each phase of the output: [to, 2 width + from], width."""
    lowest = min(from_hz, to_hz) * _RESAMPLE_ROLLOFF
    width = math.ceil(_RESAMPLE_ZEROS * from_hz / lowest)
    seconds = torch.arange(-width, width + from_hz, dtype=torch.float64) / from_hz
    phases = torch.arange(to_hz, dtype=torch.float64) / to_hz
    zeros = ((seconds - phases[:, None]) * lowest).clamp(-_RESAMPLE_ZEROS, _RESAMPLE_ZEROS)
    window = torch.cos(zeros * math.pi / _RESAMPLE_ZEROS / 2).square()
    return (torch.sinc(zeros) * window * (lowest / from_hz)).float(), width

PROMPT_TOP_HZ, PROMPT_TOP_HZ_3 = 8000.0, 12_000.0
"""Of the prompt mel of CosyVoice2, and of CosyVoice3."""


def resample(samples: Tensor, from_hz: int, to_hz: int) -> Tensor:
    """Band-limited resampling, [..., n] -> [..., ceil(n to / from)]."""
    if from_hz == to_hz:
        return samples
    divisor = math.gcd(from_hz, to_hz)
    step, phases = from_hz // divisor, to_hz // divisor
    kernel, width = _resampling_kernel(step, phases)
    rows = samples.reshape(-1, 1, samples.shape[-1])
    padded = F.pad(rows, (width, width + step))
    out = F.conv1d(padded, kernel[:, None].to(samples), stride=step).transpose(1, 2).flatten(1)
    wanted = -(-samples.shape[-1] * phases // step)
    return out[:, :wanted].reshape(*samples.shape[:-1], wanted)


def _slaney_mel(hz: Tensor) -> Tensor:
    """Slaney's mel scale: straight below 1 kHz (15 mel), a factor of 6.4 every 27 mel above."""
    return torch.where(hz < 1000, hz * 3 / 200, 15 + 27 * torch.log(hz.clamp_min(1) / 1000) / math.log(6.4))


def _kaldi_mel(hz: Tensor) -> Tensor:
    return 1127 * torch.log1p(hz / 700)


@lru_cache(maxsize=8)
def _slaney_filters(rate_hz: int, n_fft: int, bins: int, top_hz: float) -> Tensor:
    """Triangles in Hz of equal area, edges even on Slaney's scale: [n_fft / 2 + 1, bins]."""
    top = _slaney_mel(torch.tensor(top_hz, dtype=torch.float64)).item()
    mels = torch.linspace(0, top, bins + 2, dtype=torch.float64)
    edges = torch.where(mels < 15, mels * 200 / 3, 1000 * torch.exp((mels - 15) * math.log(6.4) / 27))
    hz = torch.linspace(0, rate_hz / 2, n_fft // 2 + 1, dtype=torch.float64)
    return (_triangles(hz, edges) * 2 / (edges[2:] - edges[:-2])).float()


@lru_cache(maxsize=8)
def _kaldi_filters(rate_hz: int, n_fft: int, bins: int, low_hz: float) -> Tensor:
    """Triangles in mel of height 1, the topmost bin unused: [n_fft / 2 + 1, bins]."""
    low, top = _kaldi_mel(torch.tensor([low_hz, rate_hz / 2], dtype=torch.float64)).tolist()
    mels = _kaldi_mel(torch.linspace(0, rate_hz / 2, n_fft // 2 + 1, dtype=torch.float64))
    filters = _triangles(mels, torch.linspace(low, top, bins + 2, dtype=torch.float64))
    filters[-1] = 0
    return filters.float()


def _triangles(points: Tensor, edges: Tensor) -> Tensor:
    """Height at each point of the triangle over each three neighbouring edges: [P], [M + 2] -> [P, M]."""
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (points[:, None] - left) / (centre - left)
    falling = (right - points[:, None]) / (right - centre)
    return torch.minimum(rising, falling).clamp_min(0)


def _spectrogram(samples: Tensor, n_fft: int, hop: int, pad: int) -> Tensor:
    """Spectra of reflected samples, periodic Hann window: [..., n] -> complex [..., n_fft / 2 + 1, T]."""
    rows = F.pad(samples.reshape(-1, 1, samples.shape[-1]), (pad, pad), mode="reflect")[:, 0]
    window = torch.hann_window(n_fft, device=samples.device)
    spectra = torch.stft(rows, n_fft, hop, window=window, center=False, return_complex=True)
    return spectra.reshape(*samples.shape[:-1], *spectra.shape[1:])


def prompt_mel(samples: Tensor, top_hz: float = PROMPT_TOP_HZ) -> Tensor:
    """Natural-log mel magnitudes of 24 kHz samples up to top_hz: [..., n] -> [..., n // 480, 80].

    Raises:  RuntimeError for fewer than 721 samples (nothing to reflect).
    """
    spectra = torch.view_as_real(_spectrogram(samples, 1920, 480, 720))
    magnitude = torch.sqrt(spectra.square().sum(-1) + 1e-9).transpose(-1, -2)
    filters = _slaney_filters(24_000, 1920, 80, top_hz).to(samples.device)
    return torch.log((magnitude @ filters).clamp_min(1e-5))


def tokenizer_features(samples: Tensor) -> Tensor:
    """Whisper's 128-bin log10 mel powers of 16 kHz samples, scaled: [..., n] -> [..., 128, n // 160].

    The floor lies 8 below the largest value of the clip, so a part of a clip has other values than the clip.
    """
    power = _spectrogram(samples, 400, 160, 200)[..., :-1].abs().square()
    filters = _slaney_filters(16_000, 400, 128, 8000.0).to(samples.device)
    mel = torch.log10((filters.T @ power).clamp_min(1e-10))
    return (torch.maximum(mel, mel.amax((-2, -1), keepdim=True) - 8) + 4) / 4


def kaldi_fbank(samples: Tensor) -> Tensor:
    """Kaldi's log mel filter bank of 16 kHz samples, no dither: [..., n] -> [..., (n - 240) // 160, 80]."""
    frames = samples.unfold(-1, 400, 160)                                           # [..., T, 400]
    frames = frames - frames.mean(-1, keepdim=True)
    frames = frames - 0.97 * torch.cat([frames[..., :1], frames[..., :-1]], -1)
    window = torch.hann_window(400, periodic=False, device=samples.device).pow(0.85)
    power = torch.fft.rfft(frames * window, n=512).abs().square()
    filters = _kaldi_filters(16_000, 512, 80, 20.0).to(samples.device)
    return torch.log((power @ filters).clamp_min(torch.finfo(torch.float32).eps))


def speaker_features(samples: Tensor) -> Tensor:
    """What the speaker encoder reads: `kaldi_fbank` less its mean over time."""
    features = kaldi_fbank(samples)
    return features - features.mean(-2, keepdim=True)
