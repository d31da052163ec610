"""Noise as a function of (seed, sample index): the same for every split of a stream, on every device."""

import math

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF


def _mix(word: Tensor) -> Tensor:
    """Scramble 32-bit words held in int64 (xor-shift and odd multiplications)."""
    word = word ^ (word >> 16)
    word = (word * 0x7FEB352D) & _WORD
    word = word ^ (word >> 15)
    word = (word * 0x846CA68B) & _WORD
    return word ^ (word >> 16)


def normal_noise(seeds: Tensor, starts: Tensor, count: int) -> Tensor:
    """Standard normal values at sample indices start .. start + count - 1 of each row's stream.

    Args:    seeds, starts: int64 [B]; only the low 63 bits of a seed count.
    Returns: float32 [B, count].
    """
    index = starts[:, None] + torch.arange(count, device=starts.device)             # [B, count]
    low, high = (seeds & _WORD)[:, None], ((seeds >> 32) & 0x7FFFFFFF)[:, None]
    key = _mix(_mix(low) ^ high)
    word = _mix(_mix((index & _WORD) ^ key) + (index >> 32) * 0x9E3779B1 + high & _WORD)
    # Box and Muller: one word for the radius, a second one for the angle
    radius = torch.sqrt(-2.0 * torch.log((word.double() + 0.5) / 2.0 ** 32)).float()
    angle = _mix(word ^ 0x5BD1E995 ^ low).float() * (2 * math.pi / 2.0 ** 32)
    return radius * torch.cos(angle)


def uniform_noise(seed: int, start: int, count: int, streams: int) -> Tensor:
    """Values in [0, 1) at sample indices start .. start + count - 1 of so many streams: float32 [count, streams]."""
    index = (start + torch.arange(count))[:, None] * streams + torch.arange(streams)
    word = _mix((index & _WORD) ^ _mix(torch.tensor(seed & _WORD)))
    return _mix(word + (index >> 32) * 0x9E3779B1 & _WORD).double().div(2.0**32).float().clamp(max=1 - 2.0**-24)
