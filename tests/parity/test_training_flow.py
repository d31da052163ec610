"""The flow's training: voices lie end to end, the loss is the flow's own, and a few steps learn and are saved."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict

import numpy as np
import pytest
import torch

from studio.models.flow import Flow, training
from studio.models.flow.sizes import FlowConfig
from studio.models.prompt.speaker_encoder import SpeakerEncoder, SpeakerEncoderSize
from studio.models.prompt.speech_tokenizer import SpeechTokenizer, SpeechTokenizerSize
from studio.training import augment, flow_data, widen
from studio.training import flow as flow_training
from studio.training.corpus import Clip, load_part
from studio.training.encode import tokenise_rows
from studio.training.signal import log_mel
from studio.training.stepping import load_weights, save_weights

TINY = FlowConfig(
    speech_tokens=729, encoder_dim=48, encoder_heads=1, encoder_feed_forward=32, encoder_blocks=1, upsampled_blocks=1,
    estimator_channels=32, estimator_heads=1, estimator_head_dim=32, estimator_mid_blocks=1, estimator_transformers=1,
    estimator_feed_forward=32,
)  # fmt: skip
SPEAKERS = ["a", "b"]


def _clip(number: int) -> Clip:
    frames = (70, 90, 80)[number % 3]
    text = f"clip {number}"
    return Clip(
        id=f"e{number}", lang="en", text=text, speaker=SPEAKERS[number % 2], speed=1.0, samples=600 * frames,
        ids=(50, 60), durations=(frames // 2, 10, frames - frames // 2 - 10, 0),
    )  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    # The split is by text, and holds out the last two.
    clips = [_clip(n) for n in (*range(38), 88, 139)]
    assert [clip.validation for clip in clips] == [False] * 38 + [True] * 2
    rng = np.random.default_rng(0)
    audio = [
        (3000 * np.sin(np.arange(c.samples) * (0.03 + 0.01 * (i % 5))) + 300 * rng.standard_normal(c.samples))
        for i, c in enumerate(clips)
    ]
    np.save(folder / "p.npy", np.concatenate(audio).astype(np.int16))
    with gzip.open(folder / "p.json.gz", "wt") as out:
        json.dump([asdict(c) for c in clips], out)
    return folder


@pytest.fixture(scope="module")
def networks():
    torch.manual_seed(0)
    return (
        SpeechTokenizer(SpeechTokenizerSize(dim=64, blocks=1)).eval(),
        SpeakerEncoder(SpeakerEncoderSize(channels=16)).eval(),
    )


@pytest.fixture(scope="module")
def store(cache, networks):
    return flow_data.build(
        [load_part(cache, "p")], SPEAKERS, *networks, "cpu", ratios=(1.0, 1.2), other_share=0.5
    )


def test_stretches_hold_each_voice_end_to_end(store):
    assert len(store.starts) == 4  # two speakers at two speeds
    assert torch.equal(store.starts[1:], store.starts[:-1] + store.sizes[:-1])
    assert store.sizes[1] < store.sizes[0]  # played faster, and fewer clips of it


def test_a_clip_in_the_store_has_the_mel_and_tokens_of_the_clip_alone(cache, networks, store):
    part = load_part(cache, "p")
    training_takes, _ = flow_data.plan([part], SPEAKERS, (1.0, 1.2), 0.5)
    take = training_takes[0]
    lone = torch.from_numpy(part.clip_audio(take.clip).astype(np.float32) / 32768)[None]
    length = torch.tensor([lone.shape[1]])
    tokens, mel = store.span(torch.tensor([take.first]), take.tokens)
    torch.testing.assert_close(
        mel[0], log_mel(lone, length)[0, : 2 * take.tokens], atol=5e-3, rtol=0
    )  # stored as fp16
    alone = tokenise_rows(networks[0], lone, length)[0][: take.tokens]
    assert (
        tokens[0].numpy() == alone
    ).mean() > 0.98  # a value on the edge between two levels may fall either way


def test_drawn_crops_come_with_an_embedding_of_their_own_voice(store):
    torch.manual_seed(1)
    tokens, mel, embedding = store.draw(64, 40, flow_data.stretch_chances(store, 40))
    assert tokens.shape == (64, 40) and mel.shape == (64, 80, 80) and embedding.shape == (64, 192)
    torch.testing.assert_close(embedding.norm(dim=-1), torch.ones(64))
    assert tokens.min() >= 0 and tokens.max() < 729


@pytest.mark.parametrize("streaming", [False, True])
def test_crop_loss_is_the_flows_own_loss(streaming):
    torch.manual_seed(2)
    flow = Flow(TINY).eval()
    tokens, mel, embedding = torch.randint(0, 729, (3, 40)), torch.randn(3, 80, 80), torch.randn(3, 192)
    drawn = flow_training.draw(mel)
    ours = flow_training.crop_loss(flow, tokens, mel, mel, embedding, drawn, streaming)
    lengths = torch.full((3,), 40)
    theirs = flow.matching_loss(
        tokens,
        lengths,
        mel,
        2 * lengths,
        embedding,
        drawn.noise,
        drawn.time,
        drawn.keep,
        drawn.prompt_frames,
        streaming,
    )
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_disturbed_prompts_stay_mels():
    mel = torch.full((8, 60, 80), -4.0)
    bins = flow_training.augment.mel_bin_hz(80, "slaney")
    changed = flow_training.disturbed(mel, bins)
    assert torch.isfinite(changed).all() and changed.min() >= flow_training.MEL_FLOOR - 1e-6
    assert training.SIGMA_MIN < 1


def _loss(flow, store):
    torch.manual_seed(5)
    tokens, mel, embedding = store.draw(16, 40, flow_data.stretch_chances(store, 40))
    with torch.no_grad():
        return flow_training.crop_loss(
            flow, tokens, mel, mel, embedding, flow_training.draw(mel), streaming=True
        ).item()


def _trained(cache, networks, folder, *more):
    """The flow that a short run wrote, and its last line."""
    tokenizer, encoder = networks
    save_weights(
        folder / "tok.pt", tokenizer.state_dict(), {"dim": 64, "blocks": 1, "code_dims": 6, "head_dim": 64}
    )
    save_weights(folder / "spk.pt", encoder.state_dict(), {"channels": 16})
    (folder / "speakers.json").write_text(json.dumps({"speakers": [{"name": name} for name in SPEAKERS]}))
    arguments = [
        str(cache), str(folder / "speakers.json"), str(folder / "tok.pt"), str(folder / "spk.pt"),
        str(folder / "out"), "--device", "cpu", "--minutes", "1000", "--finish-s", "1",
        "--rows", "4", "--crop-tokens", "40", "--rate", "3e-3", "--ratios", "1.0",
        "--encoder", "48", "--encoder-ffn", "32", "--channels", "32", "--heads", "1", "--mid", "1", "--ffn", "32",
    ]  # fmt: skip
    flow_training.train(flow_training.parse([*arguments, *more]))
    lines = [json.loads(line) for line in (folder / "out" / "flow.jsonl").read_text().splitlines()]
    weights, meta = load_weights(folder / "out" / "flow.pt")
    loaded = Flow.from_tensors(weights)
    assert loaded.config == FlowConfig(**meta["config"])
    return loaded, lines[-1]


def test_a_short_run_learns_and_writes_what_loads(cache, networks, store, tmp_path):
    loaded, last = _trained(cache, networks, tmp_path, "--max-steps", "60", "--report-s", "1000")
    assert last["done"] and last["step"] == 60
    assert _loss(loaded, store) < 0.7 * _loss(Flow(loaded.config).eval(), store)


def test_what_a_run_says_of_held_back_clips_is_true_of_the_weights_it_writes(cache, networks, tmp_path):
    """Each step says so and goes far, for a flow that has run once keeps something of its weights."""
    loaded, last = _trained(
        cache, networks, tmp_path, "--max-steps", "12", "--report-s", "0", "--rate", "0.1"
    )
    parts = [load_part(cache, "p")]
    held = flow_training.validate(loaded, flow_data.build(parts, SPEAKERS, *networks, "cpu"), "cpu")
    assert held["val_loss"] == pytest.approx(last["val_loss"], rel=1e-3)  # written as fp16
    assert held["mel_l1"] == pytest.approx(last["mel_l1"], rel=1e-2)


def test_a_warped_voice_is_higher_by_the_factor():
    bins_hz = augment.mel_bin_hz(80, "slaney")
    mel = torch.full((2, 5, 80), -9.0)
    mel[:, :, [12, 50]] = 0.0
    higher = widen.warped(mel, torch.tensor([1.0, 1.15]))
    torch.testing.assert_close(higher[0], mel[0], atol=1e-3, rtol=0)  # places are float32
    for peak, part in ((12, slice(0, 30)), (50, slice(30, 80))):
        found_hz = bins_hz[part][higher[1, 0, part].argmax()]
        step_hz = bins_hz[peak + 1] - bins_hz[peak]
        assert abs(found_hz - 1.15 * bins_hz[peak]) < step_hz


def test_other_voices_are_a_share_of_the_rows_and_half_of_them_lose_their_embedding():
    torch.manual_seed(3)
    mel, embedding = torch.randn(2000, 4, 80), torch.ones(2000, 192)
    same, kept = widen.other_voices(mel, embedding, 0.0, 0.0)
    assert torch.equal(same, mel) and torch.equal(kept, embedding)
    other, left = widen.other_voices(mel, embedding, 0.4, 0.1)
    changed = (other != mel).flatten(1).any(1)
    missing = left.abs().sum(1) == 0
    assert changed.float().mean() == pytest.approx(0.4, abs=0.05)
    assert missing[changed].float().mean() == pytest.approx(0.5, abs=0.08)
    assert missing[~changed].float().mean() == pytest.approx(0.1, abs=0.05)


def test_dropout_is_for_training_alone():
    torch.manual_seed(4)
    flow = Flow(TINY)
    plain = Flow(TINY)
    plain.load_state_dict(flow.state_dict())
    widen.add_dropout(flow, 0.5)
    tokens, embedding = torch.randint(0, 729, (30,)), torch.randn(192)
    prompt = torch.randint(0, 729, (10,)), torch.randn(20, 80), embedding
    assert torch.equal(flow.eval().synthesize(tokens, *prompt), plain.eval().synthesize(tokens, *prompt))
    assert not torch.equal(flow.train().synthesize(tokens, *prompt), plain.synthesize(tokens, *prompt))
