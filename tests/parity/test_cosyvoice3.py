"""CosyVoice3 on random weights (no golden numbers exist): streams against one-shot, rows against a batch, shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from studio.backends.torch_rows import TorchToken2Wav
from studio.backends.torch_token2wav import load_token2wav
from studio.errors import CheckpointError
from studio.models.flow import Flow
from studio.models.flow.dit import Rotary
from studio.models.hift import CausalHift, load_hift
from studio.models.prompt.encoder import OnnxPromptEncoder
from studio.models.prompt.features import prompt_mel
from studio.models.speech_lm.convert import convert_checkpoint, read_layout
from studio.protocols import RowStep
from studio.speech import SAMPLES_PER_TOKEN, VoicePrompt
from tests.cosyvoice3 import CODES, TEXT_IDS, tensors, write_checkpoint

SPLITS = [[30], [28, 53, 80], [1, 2, 60], [90]]


@pytest.fixture(scope="module")
def flow() -> Flow:
    return Flow.from_tensors(tensors("flow"))


@pytest.fixture(scope="module")
def hift() -> CausalHift:
    loaded = load_hift(tensors("hift"))
    assert isinstance(loaded, CausalHift)
    return loaded.fold_weight_norm()


@pytest.fixture(scope="module")
def spoken() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    return {
        "tokens": torch.randint(0, CODES, (90,), generator=generator),
        "prompt": torch.randint(0, CODES, (25,), generator=generator),
        "mel": torch.randn(50, 80, generator=generator) - 3,
        "embedding": torch.randn(192, generator=generator),
    }


def prompt_of(spoken: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return spoken["prompt"], spoken["mel"], spoken["embedding"]


@pytest.mark.parametrize("cuts", SPLITS)
def test_flow_in_any_split_is_the_whole_one(flow, spoken, cuts) -> None:
    tokens = spoken["tokens"]
    whole = flow.synthesize(tokens, *prompt_of(spoken))
    state, mels, start = flow.open(flow.prepare_prompt(*prompt_of(spoken))), [], 0
    for cut in cuts:
        mels += flow.step([state], [tokens[start:cut]], [False])
        start = cut
    mels += flow.step([state], [tokens[start:]], [True])
    assert whole.shape == (80, 180)
    assert torch.allclose(torch.cat(mels, 1), whole, atol=2e-5)


def test_row_of_the_flow_in_a_batch_is_the_lone_one(flow, spoken) -> None:
    """One with a prompt, one of a preset voice without; they lie at different frames."""
    tokens, (prompt, mel, embedding) = spoken["tokens"], prompt_of(spoken)
    prompts = [flow.prepare_prompt(prompt, mel, embedding), flow.prepare_prompt(prompt[:0], mel[:0], embedding)]
    given = [tokens, tokens[:40]]
    together = flow.step([flow.open(p) for p in prompts], given, [True, True])
    for batched, opened, new in zip(together, prompts, given, strict=True):
        (alone,) = flow.step([flow.open(opened)], [new], [True])
        assert torch.allclose(batched, alone, atol=2e-5)


def test_streaming_mask_changes_the_flow_and_the_lookahead_is_three_tokens(flow, spoken) -> None:
    tokens, prompt = spoken["tokens"], prompt_of(spoken)
    masked, full = (flow.synthesize(tokens, *prompt, streaming=streaming) for streaming in (True, False))
    assert (masked - full).abs().max() > 1e-3
    # 25 prompt and 50 spoken tokens end on a block; what lies behind the three after it has no say.
    early = flow.synthesize(tokens[:53], *prompt, final=False)
    assert torch.allclose(early, masked[:, :100], atol=2e-5)


def test_only_the_first_head_is_turned_by_its_position() -> None:
    x = torch.randn(1, 5, 128, generator=torch.Generator().manual_seed(0))
    turned = Rotary(64)(x, torch.arange(5.0))
    assert torch.equal(turned[..., 64:], x[..., 64:])
    assert torch.equal(turned[:, 0], x[:, 0])
    pairs, before = (y[0, 3, :64].view(32, 2) for y in (turned, x))
    assert torch.allclose(pairs.norm(dim=1), before.norm(dim=1), atol=1e-5)  # neighbours are turned together
    assert (pairs[0] - before[0]).abs().max() > 0.1


def voice(hift: CausalHift, mel: torch.Tensor, cuts: list[int]) -> torch.Tensor:
    state, waves, start = hift.open(3), [], 0
    for cut in cuts:
        waves += hift.step([state], [mel[:, start:cut]], [False])
        start = cut
    return torch.cat([*waves, *hift.step([state], [mel[:, start:]], [True])])


@pytest.mark.parametrize("cuts", [[30], [5, 6, 7, 50], [1, 2, 3, 4, 5], [60]])
def test_vocoder_in_any_split_is_the_whole_one(hift, cuts) -> None:
    mel = torch.randn(80, 60, generator=torch.Generator().manual_seed(5)) - 3
    whole = voice(hift, mel, [])
    assert whole.shape == (480 * 60,) and whole.std() > 0.01
    # The samples of random weights reach the limiter; errors of float32 are magnified as they would not be in speech.
    assert torch.allclose(voice(hift, mel, cuts), whole, atol=5e-4)


def test_unfinished_vocoder_holds_four_frames_back_and_never_takes_sound_back(hift) -> None:
    mel = torch.randn(80, 60, generator=torch.Generator().manual_seed(5)) - 3
    state = hift.open(3)
    (first,) = hift.step([state], [mel[:, :30]], [False])
    assert 480 * 25 <= len(first) <= 480 * 26
    assert torch.allclose(first, voice(hift, mel, [])[: len(first)], atol=5e-4)
    with pytest.raises(ValueError, match="final step"):
        hift.step([state, state], [mel[:, 30:]] * 2, [True, True])


def test_vocoder_is_the_network_that_its_description_says(hift, monkeypatch) -> None:
    """The same weights through torch's own transform and padded convolutions, with the source given."""
    mel = torch.randn(80, 40, generator=torch.Generator().manual_seed(6)) - 3
    sources = []
    extend = type(hift)._extend_source

    def watched(self, state, known, until):
        extend(self, state, known, until)
        sources.append(state.source.clone())

    monkeypatch.setattr(type(hift), "_extend_source", watched)
    ours = voice(hift, mel, [])
    assert torch.allclose(ours, _plain(hift, mel[None], sources[0][None]), atol=2e-3)


@torch.inference_mode()
def _plain(hift: CausalHift, mel: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    window = torch.hann_window(16)
    spectra = torch.view_as_real(torch.stft(source, 16, 4, 16, window, return_complex=True))
    spectra = torch.cat([spectra[..., 0], spectra[..., 1]], 1)

    def left(conv, x, pad=None):
        return conv(F.pad(x, (conv.dilation[0] * (conv.kernel_size[0] - 1) if pad is None else pad, 0)))

    def block(res, x):
        for i, conv in enumerate(res.convs1):
            x = x + left(res.convs2[i], res.activations2[i](left(conv, res.activations1[i](x))))
        return x

    x = hift.conv_pre(F.pad(mel, (0, 4)))
    for stage, rate in enumerate((8, 5, 3)):
        x = left(hift.ups[stage], F.interpolate(F.leaky_relu(x, 0.1), scale_factor=rate, mode="nearest"))
        if stage == 2:
            x = F.pad(x, (1, 0), mode="reflect")
        down = hift.source_downs[stage]
        x = x + block(hift.source_resblocks[stage], left(down, spectra, down.stride[0] - 1))
        x = sum(block(res, x) for res in hift.resblocks[3 * stage : 3 * stage + 3]) / 3
    x = left(hift.conv_post, F.leaky_relu(x, 0.01))
    magnitude, phase = torch.exp(x[:, :9]).clamp(max=100), torch.sin(x[:, 9:])
    return torch.istft(torch.polar(magnitude, phase), 16, 4, 16, window)[0].clamp(-0.99, 0.99)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("cosyvoice3"))


def test_official_folder_speaks_behind_the_same_seam(folder, spoken) -> None:
    rows = load_token2wav(folder)
    assert isinstance(rows, TorchToken2Wav)
    prompt, mel, embedding = (tensor.numpy() for tensor in prompt_of(spoken))
    whole = VoicePrompt("whole", "hi", prompt.astype(np.int32), mel, embedding)
    preset = VoicePrompt("preset", "", prompt[:0].astype(np.int32), mel[:0], embedding)
    tokens = spoken["tokens"].numpy().astype(np.int32)

    def speak(voices: list[VoicePrompt]) -> list[np.ndarray]:
        steps = []
        for name, one in enumerate(voices):
            rows.open(str(name), one, seed=2)
            steps.append(RowStep(str(name), tokens, tokens[:0], True))
        results = rows.step(steps)
        assert [r.error for r in results] == [None] * len(voices)
        return [r.samples for r in results]

    together = speak([whole, preset])
    assert [len(s) for s in together] == [len(tokens) * SAMPLES_PER_TOKEN] * 2
    np.testing.assert_allclose(together[0], speak([whole])[0], atol=5e-3)
    np.testing.assert_allclose(together[1], speak([preset])[0], atol=5e-3)


def test_upstream_switch_is_refused_with_the_reason(folder) -> None:
    with pytest.raises(CheckpointError, match="CosyVoice2 alone"):
        load_token2wav(folder, upstream=True)


def test_prompt_mel_reaches_up_to_twelve_kilohertz(folder) -> None:
    """A tone of 10 kHz is in the mel of version 3, where version 2 ends at 8."""
    tone = np.sin(2 * np.pi * 10_000 / 24_000 * np.arange(48_000)).astype(np.float32)
    prompt = OnnxPromptEncoder(folder).encode(tone, 24_000, "")
    assert prompt_mel(torch.from_numpy(tone))[20].max() < -5
    assert prompt.mel[20].max() > 0 and prompt.mel.shape[0] == 2 * len(prompt.speech_tokens)


def test_lm_is_converted_with_its_control_ids_among_the_speech_rows(folder, tmp_path) -> None:
    converted = convert_checkpoint(folder / "llm.pt", folder / "CosyVoice-BlankEN" / "config.json", tmp_path)
    assert read_layout(converted.folder) == converted.layout
    assert (converted.layout.version, converted.layout.speech_codes) == (3, CODES)
    stored = load_file(converted.folder / "model.safetensors")
    assert stored["model.embed_tokens.weight"].shape == (CODES + 200 + TEXT_IDS, 128)
    assert "lm_head.bias" not in stored


@pytest.mark.parametrize("part", ["flow", "hift"])
def test_tensor_of_another_shape_is_named(part: str) -> None:
    name = {"flow": "decoder.estimator.proj_out.bias", "hift": "conv_post.bias"}[part]
    wrong = {**tensors(part), name: torch.zeros(3)}
    with pytest.raises(Exception, match=name):
        Flow.from_tensors(wrong) if part == "flow" else load_hift(wrong)
