"""The prompt encoder on stand-in ONNX models that answer with what they were given."""

from pathlib import Path

import numpy as np
import pytest
import torch

from studio.errors import UnusablePromptSpeech
from studio.models.prompt import encoder as encoder_module
from studio.models.prompt import features
from studio.models.prompt.encoder import SPEAKER_FILE, TOKENIZER_FILE, OnnxPromptEncoder, providers_for
from studio.models.weights import WeightsError
from tests.stand_in_onnx import write_speaker, write_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_speaker(tmp_path / SPEAKER_FILE)
    write_tokenizer(tmp_path / TOKENIZER_FILE)
    return tmp_path


def clip(seconds: float, rate_hz: int) -> np.ndarray:
    t = np.arange(round(seconds * rate_hz)) / rate_hz
    return (0.3 * np.sin(2 * np.pi * 220 * t) * (1 + np.sin(2 * np.pi * 3 * t))).astype(np.float32) / 2


@pytest.mark.parametrize(("seconds", "rate_hz"), [
    (3.21, 24_000), (2.5, 44_100), (1.033, 16_000), (30.0, 48_000)])
def test_prompt_mel_is_exactly_twice_the_tokens(folder, seconds, rate_hz):
    prompt = OnnxPromptEncoder(folder).encode(clip(seconds, rate_hz), rate_hz, "text")
    assert len(prompt.speech_tokens) == pytest.approx(25 * seconds, abs=1)
    assert prompt.mel.shape == (2 * len(prompt.speech_tokens), 80)
    assert (prompt.speech_tokens.dtype, prompt.mel.dtype) == (np.int32, np.float32)
    assert prompt.speaker_embedding.shape == (192,) and prompt.prompt_text == "text"


def test_models_get_the_documented_features_by_position(folder):
    samples = clip(2.0, 16_000)
    prompt = OnnxPromptEncoder(folder).encode(samples, 16_000, "text")
    at_16k = torch.from_numpy(samples)
    ids = (features.tokenizer_features(at_16k)[0, ::4].abs() * 100).int()
    assert np.abs(prompt.speech_tokens - ids.numpy()).max() <= 1
    expected = features.speaker_features(at_16k)[:, 0].square().mean()
    assert prompt.speaker_embedding[5] == pytest.approx(float(expected), rel=1e-4)


def test_mel_is_cut_when_the_tokenizer_gives_fewer_tokens(folder):
    write_tokenizer(folder / TOKENIZER_FILE, every=6)
    prompt = OnnxPromptEncoder(folder).encode(clip(2.0, 16_000), 16_000, "")
    assert len(prompt.speech_tokens) == 34 and len(prompt.mel) == 68


def test_key_tells_clips_and_transcripts_apart(folder):
    encoder = OnnxPromptEncoder(folder)
    keys = [encoder.encode(clip(seconds, 16_000), 16_000, text).key
            for seconds, text in [(2, "a"), (2, "a"), (2, "b"), (3, "a")]]
    assert keys[0] == keys[1] and len(set(keys)) == 3


@pytest.mark.parametrize(("samples", "rate_hz", "key"), [
    (clip(2.0, 8_000), 8_000, "clip.low_rate"), (clip(0.05, 16_000), 16_000, "clip.too_short"),
    (np.zeros(0, np.float32), 16_000, "clip.too_short"), (clip(30.1, 16_000), 16_000, "clip.too_long"),
    (np.full(32_000, np.nan, np.float32), 16_000, "clip.not_finite")])
def test_clip_outside_the_contract_is_refused(folder, samples, rate_hz, key):
    with pytest.raises(UnusablePromptSpeech) as refused:
        OnnxPromptEncoder(folder).encode(samples, rate_hz, "")
    assert refused.value.key == key


def test_missing_damaged_or_foreign_models_are_named(folder):
    (folder / SPEAKER_FILE).rename(folder / "kept")
    with pytest.raises(WeightsError, match=r"campplus\.onnx: no such"):
        OnnxPromptEncoder(folder)
    (folder / SPEAKER_FILE).write_bytes(b"not onnx")
    with pytest.raises(WeightsError, match=r"campplus\.onnx: cannot be loaded"):
        OnnxPromptEncoder(folder)
    write_tokenizer(folder / SPEAKER_FILE)
    with pytest.raises(WeightsError, match="has 2 inputs, 1 expected"):
        OnnxPromptEncoder(folder)
    write_speaker(folder / SPEAKER_FILE, width=256)
    with pytest.raises(WeightsError, match="not 192 finite"):
        OnnxPromptEncoder(folder).encode(clip(2.0, 16_000), 16_000, "")


GPU_BUILD = ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider")
CPU_BUILD = ("AzureExecutionProvider", "CPUExecutionProvider")


@pytest.mark.parametrize(("device", "available", "chosen"), [
    ("cuda", GPU_BUILD, ["CUDAExecutionProvider", "CPUExecutionProvider"]),
    ("cuda:1", GPU_BUILD, ["CUDAExecutionProvider", "CPUExecutionProvider"]),
    ("cpu", GPU_BUILD, ["CPUExecutionProvider"]),
    ("cuda", CPU_BUILD, ["CPUExecutionProvider"])])
def test_onnxruntime_runs_on_cuda_where_the_models_do_and_it_can(device, available, chosen):
    found = providers_for(device, available)
    assert [one if isinstance(one, str) else one[0] for one in found] == chosen


def test_both_models_are_given_the_chosen_providers(folder, monkeypatch):
    asked = []
    session = encoder_module.onnxruntime.InferenceSession

    def noted(path, options, providers):
        asked.append(providers)
        return session(path, options, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(encoder_module.onnxruntime, "get_available_providers", lambda: list(GPU_BUILD))
    monkeypatch.setattr(encoder_module.onnxruntime, "InferenceSession", noted)
    encoder = OnnxPromptEncoder(folder, device="cuda")
    assert asked == [providers_for("cuda", GPU_BUILD)] * 2
    assert encoder.provider == "CPUExecutionProvider"  # what it really runs on is told
