"""The training corpus is read, laid out and labelled as its README says, and features match the golden ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from studio.parity.compare import compare
from studio.training import signal
from studio.training.corpus import (
    CorpusPart,
    decode_part,
    load_part,
    part_names,
    phoneme_frames,
    phoneme_labels,
    resampled_samples,
    speaker_names,
)
from studio.training.frame_store import FIELDS, FrameStore
from studio.training.pitch import track_f0
from tests.parity.conftest import GOLDEN

CORPUS = Path(__file__).resolve().parents[1] / "fixtures" / "tiny_corpus"


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> CorpusPart:
    return decode_part(CORPUS, tmp_path_factory.mktemp("cache"), "tiny", workers=1)


def store_of(part: CorpusPart, *fields: str) -> FrameStore:
    return FrameStore(
        {name: FIELDS[name] for name in fields}, speaker_names(CORPUS / "speakers.json"), "cpu", 4000, 60
    )


def test_decoded_part_is_listed_only_when_complete_and_loads_again(part: CorpusPart, tmp_path: Path) -> None:
    decode_part(CORPUS, tmp_path, "again", workers=1, limit=3)
    (tmp_path / "half.npy").write_bytes(b"")
    assert part_names(tmp_path) == ["again"]
    again = load_part(tmp_path, "again")
    assert again.clips == part.clips[:3]
    assert np.array_equal(again.clip_audio(2), part.clip_audio(2))


def test_both_readings_of_a_text_fall_on_one_side_of_the_split(part: CorpusPart) -> None:
    sides: dict[str, set[bool]] = {}
    for clip in part.clips:
        sides.setdefault(clip.text, set()).add(clip.validation)
    assert all(len(side) == 1 for side in sides.values())
    assert {True, False} == {clip.validation for clip in part.clips}


def test_phoneme_labels_cover_every_token_and_follow_the_durations(part: CorpusPart) -> None:
    for clip in part.clips:
        assert len(phoneme_frames(clip)) * 600 == clip.samples
        labels = phoneme_labels(clip)
        assert len(labels) == 2 * clip.tokens
        assert set(labels) <= {0, *clip.ids}
        assert not {156, 157, 158} & set(labels.tolist())  # marks are given to the phonemes they mark


def test_faster_playing_shortens_labels_as_it_shortens_audio(part: CorpusPart) -> None:
    clip = part.clips[0]
    assert resampled_samples(clip, 1.1) == -(-clip.samples * 10 // 11)
    assert len(phoneme_labels(clip, 50, 1.1)) == 2 * (resampled_samples(clip, 1.1) // 960)


def test_batched_features_equal_those_of_the_clip_alone(part: CorpusPart) -> None:
    store = store_of(part, "whisper", "mel", "fbank")
    store.add(part)
    for number in (0, len(part.clips) - 1):
        x24 = torch.from_numpy(part.clip_audio(number).astype(np.float32) / 32768)[None]
        lengths = torch.tensor([x24.shape[1]])
        for name in ("whisper", "mel", "fbank"):
            alone = FIELDS[name].make(x24, lengths)[0]
            stored = store.clip_field(name, number).float()
            shared = min(len(alone), len(stored))
            assert (alone[:shared] - stored[:shared]).abs().max() < 0.01  # stored as float16, values to 16


def test_signal_features_meet_the_golden_front_end() -> None:
    fixtures = CORPUS.parent
    x24 = torch.from_numpy(soundfile.read(fixtures / "signal_24k.wav", dtype="float32")[0])[None]
    x16 = torch.from_numpy(soundfile.read(fixtures / "signal_16k.wav", dtype="float32")[0])[None]
    whisper = signal.whisper_log10_mel(x16, torch.tensor([x16.shape[1]]))[0]
    got = {
        "out_resampled_24k_to_16k": signal.resample(x24, 24_000, 16_000)[0],
        "out_mel_24k": signal.log_mel(x24, torch.tensor([x24.shape[1]]))[0],
        "out_whisper_16k": signal.whisper_scale(whisper, whisper.max()).T,
        "out_fbank_raw_16k": signal.kaldi_fbank(x16)[0],
    }
    lines = [line for line in compare(GOLDEN, "01_frontend", got) if line.array in got]
    assert len(lines) == 4 and [str(line) for line in lines if line.verdict != "pass"] == []


def test_pitch_tracker_follows_a_glide_and_calls_noise_unvoiced() -> None:
    rate, seconds = 24_000, 1.0
    t = torch.arange(int(rate * seconds)) / rate
    hz = 120 + 80 * t
    phase = torch.cumsum(hz, 0) / rate * 2 * torch.pi
    glide = sum(torch.sin(k * phase) / k for k in range(1, 8)) * 0.2
    noise = torch.randn(len(t), generator=torch.Generator().manual_seed(1)) * 0.1
    found = track_f0(torch.stack([glide, noise]), torch.tensor([len(t), len(t)]))
    centres = (torch.arange(found.shape[1]) * 480 + 240).clamp(max=len(t) - 1)
    inner = slice(3, -3)
    assert ((found[0] / hz[centres] - 1).abs()[inner] < 0.01).all()
    assert (found[1] == 0).float().mean() > 0.9


def test_crops_are_training_clips_only_and_stay_inside_them(part: CorpusPart) -> None:
    store = store_of(part, "phoneme")
    store.add(part)
    torch.manual_seed(0)
    clip, first, inside = store.draw(500, 30)
    assert not set(clip.tolist()) & set(store.validation)
    last = first + inside.sum(1)
    assert (first >= store.first_token[clip]).all()
    assert (last <= store.first_token[clip] + store.tokens[clip]).all()
    assert (inside.sum(1) == store.tokens[clip].clamp(max=30)).all()
