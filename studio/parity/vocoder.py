"""The vocoder: fixtures 05.

Pitch, source and decoder are held one by one, each on the fixture's own input: a pitch that differs by 3e-4 Hz (the
order of a sum; 0.01 are allowed) moves the phase of the source, and so the samples, by more than theirs may differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch

from studio.models.hift import Hift
from studio.models.upstream import with_upstream_phase
from studio.parity.compare import Line, compare
from studio.parity.fixtures import Fixtures


@lru_cache(maxsize=2)
def load_hift(fixtures: Fixtures, size: str) -> Hift:
    """The vocoder with upstream's phase, summed in float32; ours is exact and differs by 0.01 rad in long speech."""
    return with_upstream_phase(Hift.from_state(fixtures.weights(size, "hift"))).to(fixtures.device)


@torch.inference_mode()
def run_hift(fixtures: Fixtures, name: str) -> Iterator[Line]:
    """05_hift: pitch, source and samples, with noise, without, and after a cached source."""
    hift, given = load_hift(fixtures, fixtures.size_of(name)), fixtures.inputs(name)
    golden = {key: fixtures.tensor(array) for key, array in fixtures.arrays(name, "out_").items()}
    mel, noise, f0 = given["mel"][None], given["noise"][None], golden["out_f0"][None]
    got = {
        "out_f0": hift.predict_f0(mel)[0],
        "out_source": hift.m_source(f0, noise)[0],
        "out_source_nonoise": hift.m_source(f0, torch.zeros_like(noise))[0],
        "out_speech": hift(mel, f0, noise)[0],
        "out_speech_nonoise": hift(mel, f0, torch.zeros_like(noise))[0],
    }
    if "out_speech_cached" in golden:
        cached = given["cache_source"]
        source = torch.cat([cached, golden["out_source_nonoise"][len(cached) :]])
        got["out_speech_cached"] = hift.decode(mel, source[None])[0]
    return compare(fixtures, name, got)


@torch.inference_mode()
def run_source(fixtures: Fixtures, name: str) -> Iterator[Line]:
    """05_source: sines, voicing and source of a given pitch."""
    source, given = load_hift(fixtures, fixtures.size_of(name)).m_source, fixtures.inputs(name)
    f0, noise = given["f0"][None], given["noise"][None]
    config = source.config
    voicing = source.voicing(f0)
    level = voicing * config.noise_std + (1 - voicing) * config.sine_amplitude / 3
    sines = source.sines(f0) * voicing[..., None]
    got = {
        "out_sines": sines[0],
        "out_uv": voicing[0],
        "out_sines_noise": (sines + level[..., None] * noise)[0],
        "out_source": source(f0, torch.zeros_like(noise))[0],
        "out_source_noise": source(f0, noise)[0],
    }
    return compare(fixtures, name, got)
