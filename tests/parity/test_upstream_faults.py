"""Each fault of upstream's streaming that docs/decisions/0005 names: upstream has it, ours has not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from studio.backends.torch_assembly import Assembly, assemble
from studio.backends.torch_upstream import UpstreamToken2Wav
from studio.models.flow import Flow
from studio.models.hift import Hift
from studio.models.upstream import CACHED_SAMPLES, FADE, Hop, UpstreamStream
from studio.protocols import RowStep
from studio.speech import SAMPLES_PER_TOKEN, VoicePrompt
from tests.parity.conftest import GOLDEN

NAME = "04_stream_session_mini"
FLAT_HZ = 90.0
"""A pitch that has no whole number of periods in a frame or a chunk."""


@pytest.fixture(scope="module")
def given() -> dict[str, torch.Tensor]:
    return GOLDEN.inputs(NAME)


@pytest.fixture
def flow() -> Flow:
    return Flow.from_tensors(GOLDEN.weights("mini", "flow"), GOLDEN.sizes("mini")["flow"]["est_head_dim"])


@pytest.fixture
def hift() -> Hift:
    return Hift.from_state(GOLDEN.weights("mini", "hift"))


def prompt_of(given: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return given["prompt_token"], given["prompt_feat"], given["embedding"]


def silent(f0: torch.Tensor) -> torch.Tensor:
    return f0.new_zeros(1, f0.shape[1] * 480)


def voice_of(given: dict[str, torch.Tensor]) -> VoicePrompt:
    tokens, mel, embedding = (tensor.numpy() for tensor in prompt_of(given))
    return VoicePrompt("golden", "", tokens.astype(np.int32), mel, embedding)


def test_second_stream_waits_for_a_hundred_tokens_only_upstream(flow, hift, given) -> None:
    hop, waits = Hop(), []
    for _ in range(2):
        stream = UpstreamStream(flow, hift, hop, prompt_of(given), silent)
        waits.append(stream.next_chunk_tokens)
        _ = list(stream.push(given["token"], final=True))
    assert waits == [25 + 18, 100 + 68]
    ours = assemble(flow, hift, Assembly())
    assert ours.open("first", voice_of(given), 0) == ours.open("second", voice_of(given), 0) <= 25


def test_last_chunk_continues_what_was_heard_only_here(flow, hift, given) -> None:
    tokens, prompt = given["token"], prompt_of(given)
    masked = flow.synthesize(tokens, *prompt, streaming=True)
    *heard, last = UpstreamStream(flow, hift, Hop(), prompt, silent).push(tokens, final=True)
    before = torch.cat([chunk.mel for chunk in heard], 1)
    assert torch.allclose(before, masked[:, : before.shape[1]], atol=1e-4)
    assert (last.mel - masked[:, before.shape[1] :]).abs().max() > 0.05
    aligned = (prompt[0][7:], prompt[1][14:], prompt[2])  # ours begins the prompt on a block (0002)
    state = flow.open(flow.prepare_prompt(*prompt))
    ours = torch.cat(flow.step([state], [tokens[:60]], [False]) + flow.step([state], [tokens[60:]], [True]), 1)
    assert torch.allclose(ours, flow.synthesize(tokens, *aligned, streaming=True), atol=1e-4)


def test_joint_is_louder_than_the_rest_only_upstream() -> None:
    halves = FADE[:CACHED_SAMPLES] + FADE[CACHED_SAMPLES:]
    assert halves.min() > 1.079 and halves.max() < 1.081


def test_phase_jumps_between_chunks_only_upstream(flow, hift, given, monkeypatch) -> None:
    """At a flat pitch a source without a jump is one sine; what differs from it is the jump."""
    monkeypatch.setattr(Hift, "predict_f0", lambda self, mel: torch.full((1, mel.shape[2]), FLAT_HZ))
    chunks = list(UpstreamStream(flow, hift, Hop(), prompt_of(given), silent).push(given["token"], final=True))
    whole = hift.m_source(torch.full((1, 240), FLAT_HZ), torch.zeros(1, 240 * 480))[0]
    start = 86 * 480
    second = chunks[1].source[CACHED_SAMPLES : CACHED_SAMPLES + 9600]
    assert (second - whole[start : start + 9600]).abs().max() > 0.05
    # Ours at the same place: the source that the decoder was given, in two steps.
    state, mel, sources = hift.open(0), given["prompt_feat"].T, []
    flat = lambda self, mel, lengths=None: torch.full((1, mel.shape[2]), FLAT_HZ)  # noqa: E731
    monkeypatch.setattr(type(hift.f0_predictor), "precise", flat)
    monkeypatch.setattr("studio.models.hift.streaming.normal_noise", lambda s, at, count: torch.zeros(1, count))
    append = type(state.source).append
    monkeypatch.setattr(
        type(state.source), "append",
        lambda self, data: (sources.append(data) if self is state.source else None, append(self, data))[1],
    )  # fmt: skip
    hift.step([state], [mel[:, :30]], [False])
    hift.step([state], [mel[:, 30:]], [True])
    joined = torch.cat(sources, 1)[0]
    assert torch.allclose(joined, hift.m_source(torch.full((1, 64), FLAT_HZ), torch.zeros(1, 64 * 480))[0], atol=1e-4)


def test_switch_speaks_behind_the_seam_and_its_samples_add_up(flow, hift, given) -> None:
    rows = UpstreamToken2Wav(flow, hift)
    tokens = given["token"].numpy().astype(np.int32)
    assert rows.open("row", voice_of(given), 3) == 43
    samples = []
    for start, end in ((0, 43), (43, 68), (68, 93)):
        (result,) = rows.step([RowStep("row", tokens[start:end], tokens[end : end + 3], False)])
        samples.append(len(result.samples))
    (result,) = rows.step([RowStep("row", tokens[93:], tokens[:0], True)])
    assert samples == [43 * SAMPLES_PER_TOKEN - CACHED_SAMPLES, 0, 50 * SAMPLES_PER_TOKEN]
    assert sum(samples) + len(result.samples) == len(tokens) * SAMPLES_PER_TOKEN
    assert rows.stats().rows_open == 0
    assert "no such row" in rows.step([RowStep("row", tokens[:1], tokens[:0], True)])[0].error


def test_each_row_of_the_switch_keeps_its_guidance_and_the_flow_its_own(flow, hift, given) -> None:
    tokens, own = given["token"].numpy().astype(np.int32)[:43], flow.guidance

    def spoken(*guidances: float | None) -> list[np.ndarray]:
        rows = UpstreamToken2Wav(flow, hift)
        for number, guidance in enumerate(guidances):
            rows.open(str(number), voice_of(given), 3, guidance)
            if number == 0:
                rows.step([RowStep("0", tokens[:1], tokens[:0], False)])  # before the others are opened
        rest = [RowStep(str(n), tokens[1:] if n == 0 else tokens, tokens[:0], True) for n in range(len(guidances))]
        return [result.samples for result in rows.step(rest)]

    strong, plain = spoken(2.0, None)
    assert flow.guidance == own
    np.testing.assert_array_equal(plain, spoken(own)[0])
    assert np.abs(strong - plain).max() > 1e-3
