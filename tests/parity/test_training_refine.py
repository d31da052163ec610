"""A finished flow trained further: what it is judged by hears voices, and a few steps change the voice alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from studio.models.flow import Flow
from studio.models.flow.layers import WholeView
from studio.models.flow.sizes import FlowConfig
from studio.models.prompt.speech_tokenizer import SpeechTokenizer, SpeechTokenizerSize
from studio.training import refine, voice_loss
from studio.training.corpus import CorpusPart, decode_part
from studio.training.encode import embed, load_speaker_encoder
from studio.training.flow import draw
from studio.training.recover import recover_speaker_encoder
from studio.training.stepping import load_weights, save_weights

CORPUS = Path(__file__).resolve().parents[1] / "fixtures" / "tiny_corpus"
VOICE = Path(__file__).resolve().parents[2] / "assets" / "voice"
TINY = FlowConfig(
    speech_tokens=729, encoder_dim=48, encoder_heads=1, encoder_feed_forward=32, encoder_blocks=1, upsampled_blocks=1,
    estimator_channels=32, estimator_heads=1, estimator_head_dim=64, estimator_mid_blocks=1, estimator_transformers=1,
    estimator_feed_forward=32,
)  # fmt: skip
FROZEN = ("encoder.", "input_embedding.")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoded corpus in cache/, a small tokenizer, the embedded voice's speaker encoder, and a small flow."""
    folder = tmp_path_factory.mktemp("refine")
    decode_part(CORPUS, folder / "cache", "tiny", workers=1)
    torch.manual_seed(0)
    tokenizer = SpeechTokenizer(SpeechTokenizerSize(dim=64, blocks=1))
    size = {"dim": 64, "blocks": 1, "code_dims": 6, "head_dim": 64}
    save_weights(folder / "tokenizer.pt", tokenizer.state_dict(), size)
    recover_speaker_encoder(VOICE / "campplus.onnx", folder / "speaker.pt")
    save_weights(folder / "flow.pt", Flow(TINY).state_dict())
    return folder


@pytest.fixture(scope="module")
def part(folder: Path) -> CorpusPart:
    return refine.load_part(folder / "cache", "tiny")


@pytest.fixture(scope="module")
def hear(folder: Path, part: CorpusPart) -> voice_loss.MelSpeakerEncoder:
    encoder = load_speaker_encoder(folder / "speaker.pt", "cpu")
    return voice_loss.MelSpeakerEncoder(encoder, voice_loss.fit_filter_bank_map([part]))


def clips_of(part: CorpusPart, frames: int, ratio: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Mel [B, frames, 80] and filter bank [B, 2 frames, 80] of clips of as many speakers as there are."""
    first = {clip.speaker: i for i, clip in enumerate(part.clips) if not clip.validation}
    pairs = list(voice_loss.heard_both_ways([(part, i) for i in first.values()], ratio))
    return torch.cat([mel[:, :frames] for mel, _ in pairs]), torch.cat([f[:, : 2 * frames] for _, f in pairs])


@torch.no_grad()
def test_a_mel_is_heard_as_its_own_sound_is(part: CorpusPart, hear: voice_loss.MelSpeakerEncoder) -> None:
    mel, fbank = clips_of(part, frames=60, ratio=0.93)  # at none of the speeds that were fitted
    given = hear.to_fbank(mel)
    assert given.shape == fbank.shape
    # one frame earlier or later fits worse: the two lie where the mel frame is
    errors = [F.mse_loss(given.roll(shift, 1)[:, 4:-4], fbank[:, 4:-4]).item() for shift in (-2, -1, 0, 1, 2)]
    assert min(errors) == errors[2] and errors[2] < 0.2 * fbank.var()
    similar = hear(mel) @ embed(hear.encoder, fbank).T
    assert (similar.argmax(1) == torch.arange(len(mel))).all()
    assert similar.diagonal().mean() > 0.8


def test_the_voice_is_nearer_the_more_of_the_target_a_mel_is(
    part: CorpusPart, hear: voice_loss.MelSpeakerEncoder
) -> None:
    target, _ = clips_of(part, frames=60)
    other = target.roll(1, 0)
    along = [voice_loss.voice_terms(hear, other.lerp(target, share), target) for share in (0.0, 0.5, 1.0)]
    for name, sign in (("cosine", -1), ("contrast", 1), ("colour", 1), ("spread", 1)):
        values = [sign * float(getattr(terms, name)) for terms in along]
        assert values == sorted(values, reverse=True) and values[0] > values[2] + 0.05, name
    assert along[0].right == 0 and along[2].right == 1
    assert float(along[2].loss(0.3, 0.0, 0.5)) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("term", ["cosine", "contrast", "colour", "spread"])
def test_a_step_against_the_gradient_of_each_term_improves_it(
    part: CorpusPart, hear: voice_loss.MelSpeakerEncoder, term: str
) -> None:
    target, _ = clips_of(part, frames=60)
    mel = target.roll(1, 0).requires_grad_()
    sign = -1 if term == "cosine" else 1
    before = sign * getattr(voice_loss.voice_terms(hear, mel, target), term)
    (gradient,) = torch.autograd.grad(before, mel)
    moved = mel.detach() - 0.5 * gradient / gradient.norm()
    assert sign * getattr(voice_loss.voice_terms(hear, moved, target), term) < before.detach()


def test_rows_are_led_as_a_solve_without_guidance_goes() -> None:
    torch.manual_seed(1)
    flow = Flow(TINY, steps=refine.LED_STEPS).eval()
    noise, given = torch.randn(2, 20, 80), torch.randn(2, 20, 240)
    view = WholeView(None)
    led = refine.lead(flow, noise, given, refine.LED_STEPS, view)
    for row in range(2):
        with torch.no_grad():
            whole = flow.solve(*given[row].split(80, dim=-1), noise[row], [view] * refine.LED_STEPS, guidance=0.0)
        torch.testing.assert_close(led[row], whole, atol=1e-5, rtol=1e-5)


def test_rows_in_other_voices_are_told_their_own_speaker_the_wrong_one_or_none() -> None:
    torch.manual_seed(2)
    wrong, own = torch.zeros(4000, 192), torch.zeros(4000, 192)
    wrong[:, 0], own[:, 1] = 10.0, 10.0
    other = torch.arange(4000) < 2000
    given = refine.embeddings_of(wrong, own, other)
    told = torch.stack([given[:, 1] > 5, given[:, 0] > 5, (given == 0).all(1)], 1).float()
    torch.testing.assert_close(told[other].mean(0), torch.tensor([0.5, 0.25, 0.25]), atol=0.04, rtol=0)
    torch.testing.assert_close(told[~other].mean(0), torch.tensor([0.0, 0.8, 0.2]), atol=0.04, rtol=0)


@pytest.mark.parametrize("streaming", [False, True])
def test_the_voices_gradient_reaches_the_estimator_and_not_the_token_encoder(
    folder: Path, part: CorpusPart, hear: voice_loss.MelSpeakerEncoder, streaming: bool
) -> None:
    flow = refine.load_flow(folder / "flow.pt")
    mel, _ = clips_of(part, frames=80)
    tokens, drawn = torch.randint(0, 729, (len(mel), 40)), draw(mel)
    drawn.keep.fill_(1.0)
    batch = refine.Batch(tokens, mel, mel, hear(mel), drawn, led=4, led_steps=2, led_prompt_frames=30)
    _, voice = refine.batch_losses(flow, hear, batch, streaming)
    voice.loss(0.3, 0.1, 0.0).backward()
    for name, parameter in flow.named_parameters():
        if name.startswith(FROZEN):
            assert parameter.grad is None, name
        elif name.startswith("decoder.") and name.endswith("weight"):
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name
    assert all(parameter.grad is None for parameter in hear.parameters())


def test_a_short_run_changes_the_voice_alone_and_writes_what_loads(folder: Path) -> None:
    names = ("cache", "tokenizer.pt", "speaker.pt", "flow.pt", "out")
    cache, tokenizer, encoder, start, out = (str(folder / name) for name in names)
    arguments = [
        cache, str(CORPUS / "speakers.json"), tokenizer, encoder, start, out, "--device", "cpu", "--minutes", "1000",
        "--max-steps", "4", "--rows", "3", "--usual-rows", "2", "--crop-tokens", "40", "--rate", "3e-3",
        "--report-s", "0", "--ratios", "1.0", "1.15",
    ]  # fmt: skip
    refine.train(refine.parse(arguments))
    lines = [json.loads(line) for line in (folder / "out" / "refined.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "matching" in line]
    assert [line["step"] for line in steps] == [1, 2, 3, 4]
    terms = {"matching", "norm", *voice_loss.VoiceTerms._fields}
    for line in steps:
        assert terms <= line.keys() and torch.tensor([line[term] for term in terms]).isfinite().all()
    assert lines[-1] == {"t": lines[-1]["t"], "step": 4, "done": True}
    before, _ = load_weights(folder / "flow.pt")
    after, meta = load_weights(folder / "out" / "refined.pt")
    assert Flow.from_tensors(after).config == FlowConfig(**meta["config"]) == TINY
    for name, tensor in after.items():
        if name.startswith(FROZEN):
            assert torch.equal(tensor, before[name]), name
    assert not torch.equal(after["encoder_proj.weight"], before["encoder_proj.weight"])
    changed = [not torch.equal(after[name], before[name]) for name in after if name.startswith("decoder.")]
    assert sum(changed) > 0.8 * len(changed)
