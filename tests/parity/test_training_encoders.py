"""Speech tokenizer and speaker encoder: a few steps of training, padded batches, and the exported ONNX files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from studio.models.prompt.speech_tokenizer import SpeechTokenizer, SpeechTokenizerSize
from studio.training import speaker, speech_tokenizer
from studio.training.corpus import decode_part, load_part
from studio.training.encode import embed_part, load_speaker_encoder, load_tokenizer, tokenise_part
from studio.training.export import export_speaker_encoder, export_tokenizer
from studio.training.frame_store import to_16k
from studio.training.recover import recover_speaker_encoder, recover_tokenizer
from studio.training.signal import whisper_log10_mel, whisper_scale

CORPUS = Path(__file__).resolve().parents[1] / "fixtures" / "tiny_corpus"
VOICE = Path(__file__).resolve().parents[2] / "assets" / "voice"
COMMON = [
    "--device",
    "cpu",
    "--minutes",
    "1000",
    "--max-steps",
    "3",
    "--capacity-tokens",
    "9000",
    "--capacity-clips",
    "90",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(cache, out) after three steps of both trainers on small networks."""
    cache, out = tmp_path_factory.mktemp("cache"), tmp_path_factory.mktemp("out")
    decode_part(CORPUS, cache, "tiny", workers=1)
    places = [str(cache), str(CORPUS / "speakers.json"), str(out)]
    speech_tokenizer.train(
        speech_tokenizer.parse(
            [*places, *COMMON, "--rows", "4", "--crop-tokens", "24", "--dim", "64", "--blocks", "2"]
        )
    )
    speaker.train(speaker.parse([*places, *COMMON, "--rows", "8", "--crop-tokens", "24", "--channels", "32"]))
    return cache, out


def last_line(path: Path) -> dict:
    return json.loads(path.read_text().splitlines()[-1])


def test_trainers_finish_with_finite_figures(trained: tuple[Path, Path]) -> None:
    _, out = trained
    figures = last_line(out / "speech_tokenizer.jsonl")
    assert figures["done"] and figures["step"] == 3
    assert 0 < figures["codes_used"] <= 729
    assert all(np.isfinite(value) for value in figures.values())
    figures = last_line(out / "speaker_encoder.jsonl")
    assert figures["done"] and np.isfinite(figures["loss"])


def test_tokens_of_a_padded_batch_are_those_of_the_clip_alone(trained: tuple[Path, Path]) -> None:
    cache, out = trained
    part = load_part(cache, "tiny")
    tokenizer = load_tokenizer(out / "speech_tokenizer.pt", "cpu")
    batched = tokenise_part(tokenizer, part, "cpu")
    differing = total = 0
    for number, clip in enumerate(part.clips):
        x24 = torch.from_numpy(part.clip_audio(number).astype(np.float32) / 32768)[None]
        mel = whisper_log10_mel(*to_16k(x24, torch.tensor([x24.shape[1]])))
        alone = tokenizer(whisper_scale(mel, mel.max()).transpose(1, 2))[0].numpy()
        assert len(alone) == len(batched[number]) and abs(len(alone) - clip.tokens) <= 1
        differing += int((alone != batched[number]).sum())
        total += len(alone)
    assert differing <= total // 200  # a value on the edge of two levels may fall either way


def test_tokens_do_not_depend_on_what_lies_beyond_the_windows() -> None:
    torch.manual_seed(0)
    size = SpeechTokenizerSize(dim=64, blocks=2, window_tokens=4, conv_kernel=3)
    tokenizer = SpeechTokenizer(size).eval()
    features = torch.randn(1, 128, 4 * 60)
    reach = 2 * (4 + 1) + 2
    changed = features.clone()
    changed[:, :, 4 * 40 :] = 0
    assert torch.equal(tokenizer(features)[0, : 40 - reach], tokenizer(changed)[0, : 40 - reach])


def test_frames_that_fill_no_token_are_dropped() -> None:
    tokenizer = SpeechTokenizer(SpeechTokenizerSize(dim=64, blocks=1)).eval()
    features = torch.randn(1, 128, 43)
    assert torch.equal(tokenizer(features), tokenizer(features[:, :, :40]))


def test_exported_files_agree_with_torch_at_every_length(trained: tuple[Path, Path], tmp_path: Path) -> None:
    _, out = trained
    export_tokenizer(out / "speech_tokenizer.pt", tmp_path / "speech_tokenizer_v2.onnx")  # checks itself
    export_speaker_encoder(out / "speaker_encoder.pt", tmp_path / "campplus.onnx")
    assert {path.name for path in tmp_path.iterdir()} == {"speech_tokenizer_v2.onnx", "campplus.onnx"}


def test_speaker_embeddings_have_unit_length(trained: tuple[Path, Path]) -> None:
    cache, out = trained
    part = load_part(cache, "tiny")
    embeddings = embed_part(load_speaker_encoder(out / "speaker_encoder.pt", "cpu"), part, "cpu")
    assert embeddings.shape == (len(part.clips), 192)
    assert np.allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-4)


def test_pairs_are_told_by_speaker() -> None:
    vectors = np.eye(4)[[0, 0, 1, 1]]
    figures = speaker.pair_figures(vectors, np.array([5, 5, 9, 9]), "seen")
    assert figures == {"seen_eer": 0.0, "seen_within": 1.0, "seen_between": 0.0}
    assert speaker.pair_figures(vectors[:1], np.array([5]), "seen") == {}


def test_error_rate_is_zero_when_speakers_do_not_overlap() -> None:
    assert speaker.equal_error_rate(np.array([0.8, 0.9, 0.95]), np.array([0.1, 0.2, 0.3])) == 0
    assert abs(speaker.equal_error_rate(np.linspace(0, 1, 101), np.linspace(0, 1, 101)) - 0.5) < 0.02


def test_networks_recovered_from_the_checkpoint_are_those_that_were_exported(tmp_path: Path) -> None:
    recover_tokenizer(VOICE / "speech_tokenizer_v2.onnx", tmp_path / "tokenizer.pt")
    recover_speaker_encoder(VOICE / "campplus.onnx", tmp_path / "speaker.pt")
    torch.manual_seed(0)
    mel, length = torch.randn(1, 128, 400), torch.tensor([400], dtype=torch.int32)
    fbank = torch.randn(1, 300, 80)
    with torch.no_grad():
        ids = load_tokenizer(tmp_path / "tokenizer.pt", "cpu")(mel, length).numpy()
        embedding = load_speaker_encoder(tmp_path / "speaker.pt", "cpu")(fbank).numpy()
    given = onnx_run(VOICE / "speech_tokenizer_v2.onnx", mel, length)
    assert given.shape == ids.shape and (given != ids).mean() <= 0.02  # a value on the edge of two levels may fall
    np.testing.assert_allclose(onnx_run(VOICE / "campplus.onnx", fbank), embedding, atol=1e-4)


def onnx_run(path: Path, *inputs: torch.Tensor) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    return session.run(None, dict(zip(names, (value.numpy() for value in inputs), strict=True)))[0]
