"""Streams of the flow against one whole solve under the streaming mask: any split, any batch, any end."""

from __future__ import annotations

import pytest
import torch

from studio.models.flow import Flow, FlowState
from studio.models.flow.solver import guidance_weights, solve, start_noise
from studio.models.flow.state import align_prompt

TOLERANCE = 1e-4  # float32 sums in another order; seen: below 1e-5


@pytest.fixture(scope="module")
def flow(weights):
    return Flow.from_tensors(weights("mini", "flow"), estimator_head_dim=32)


def tokens(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 243, (count,), generator=torch.Generator().manual_seed(seed))


class Voice:
    def __init__(self, prompt_tokens: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(100 + seed)
        self.tokens = tokens(prompt_tokens, 200 + seed)
        self.mel = torch.randn(2 * prompt_tokens, 80, generator=generator) * 2 - 4
        self.embedding = torch.randn(192, generator=generator)

    def whole(
        self, flow: Flow, spoken: torch.Tensor, tail: int = 0, guidance: float | None = None
    ) -> torch.Tensor:
        prompt_tokens, prompt_mel = align_prompt(self.tokens, self.mel, tail)
        given = spoken, prompt_tokens, prompt_mel, self.embedding
        return flow.synthesize(*given, streaming=True, guidance=guidance)

    def prepared(self, flow: Flow, **options):
        return flow.prepare_prompt(self.tokens, self.mel, self.embedding, **options)

    def opened(self, flow: Flow, **options) -> FlowState:
        return flow.open(self.prepared(flow, **options))


def play(flow: Flow, state: FlowState, spoken: torch.Tensor, hops: list[int]) -> torch.Tensor:
    """Give the tokens in hops of these lengths; the rest is final."""
    mels = []
    for hop in hops:
        mels += flow.step([state], [spoken[:hop]], [False])
        spoken = spoken[hop:]
    mels += flow.step([state], [spoken], [True])
    return torch.cat(mels, dim=1)


def assert_same(got: torch.Tensor, expected: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    torch.testing.assert_close(got, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("hops", [[], [28, 25, 25], [1] * 40, [0, 27, 1, 24, 1, 30], [3, 25, 47]])
def test_any_split_equals_one_whole_solve(flow, hops):
    voice, spoken = Voice(58), tokens(111)
    got = play(flow, voice.opened(flow), spoken, hops)
    assert got.shape == (80, 222)
    assert_same(got, voice.whole(flow, spoken))


@pytest.mark.parametrize(
    ("prompt_tokens", "tail"),
    [
        (0, 0), (1, 0), (24, 3), (25, 0), (25, 3), (27, 0), (27, 1), (28, 3), (53, 12), (110, 12), (53, 15), (53, 24),
        (75, 3),
    ],
)
def test_any_prompt_length_and_tail_equals_one_whole_solve(flow, prompt_tokens, tail):
    voice, spoken = Voice(prompt_tokens), tokens(40)
    assert_same(
        play(flow, voice.opened(flow, tail_tokens=tail), spoken, [30]), voice.whole(flow, spoken, tail)
    )


@pytest.mark.parametrize("remainder", range(25))
def test_final_block_of_any_length_equals_one_whole_solve(flow, remainder):
    voice, spoken = Voice(3), tokens(22 + remainder)
    assert_same(play(flow, voice.opened(flow), spoken, [25]), voice.whole(flow, spoken))


def rows_of_each_guidance(flow, guidances: list[float | None]) -> list[torch.Tensor]:
    """A stream of one voice with each guidance, two steps of all in one batch; the first step leaves tokens."""
    voice, spoken = Voice(53), tokens(70)
    states = [voice.opened(flow, guidance=guidance) for guidance in guidances]
    first = flow.step(states, [spoken[:40]] * len(states), [False] * len(states))
    rest = flow.step(states, [spoken[40:]] * len(states), [True] * len(states))
    return [torch.cat(parts, dim=1) for parts in zip(first, rest, strict=True)]


def test_rows_of_different_guidance_in_one_batch_equal_whole_solves_of_their_own(flow):
    guidances = [None, 2.0, 0.0, 0.7]
    made = rows_of_each_guidance(flow, guidances)
    for mel, guidance in zip(made, guidances, strict=True):
        assert_same(mel, Voice(53).whole(flow, tokens(70), guidance=guidance))
    assert (made[0] - made[1]).abs().max() > 0.1  # seen: 4.4


def test_guidance_of_each_frame_is_rounded_as_one_of_all_frames():
    velocities = torch.randn(4, 2, 7, 80, generator=torch.Generator().manual_seed(0))
    weights = torch.tensor([guidance_weights(0.7)]).expand(7, -1)
    one, each = (solve(lambda x, step: velocities[step] * x, start_noise()[:7], 4, g) for g in (0.7, weights))
    assert torch.equal(one, each)


def test_final_tokens_may_all_have_come_before(flow):
    voice, spoken = Voice(25), tokens(50)
    assert_same(play(flow, voice.opened(flow), spoken, [50]), voice.whole(flow, spoken))


def test_stream_without_any_token_gives_no_mel(flow):
    for prompt_tokens in (0, 10, 25, 53):
        assert play(flow, Voice(prompt_tokens).opened(flow), tokens(0), []).shape == (80, 0)


def test_block_is_given_as_soon_as_three_tokens_follow_it_and_not_before(flow):
    state = Voice(50).opened(flow)
    assert state.first_block_tokens == 25
    assert flow.step([state], [tokens(27)], [False])[0].shape == (80, 0)
    assert flow.step([state], [tokens(1)], [False])[0].shape == (80, 50)


@pytest.mark.parametrize(
    ("prompt_tokens", "tail", "expected"),
    [(53, 0, 25), (53, 3, 22), (53, 12, 13), (125, 12, 13), (53, 15, 10), (24, 0, 26), (24, 12, 26), (10, 12, 15)],
)
def test_state_tells_how_many_tokens_its_first_block_needs(flow, prompt_tokens, tail, expected):
    state = Voice(prompt_tokens).opened(flow, tail_tokens=tail)
    assert state.first_block_tokens == expected
    assert flow.step([state], [tokens(expected + 3)], [False])[0].shape == (80, 2 * expected)


def _scripts() -> list[tuple[Voice, torch.Tensor, list[int]]]:
    """Streams with other voices, lengths and hops, so that their histories differ in every step."""
    return [
        (Voice(53, 1), tokens(120, 1), [28, 25, 50]),
        (Voice(12, 2), tokens(61, 2), [0, 40, 15]),
        (Voice(75, 3), tokens(140, 3), [100, 0, 25]),
        (Voice(0, 4), tokens(29, 4), [28, 0, 0]),
    ]


def _play_together(flow: Flow, scripts, leave_after: dict[int, int]) -> list[torch.Tensor]:
    """Step all streams in one batch; stream `row` is left out for good after `leave_after[row]` steps."""
    states = [voice.opened(flow) for voice, _, _ in scripts]
    given = [0] * len(scripts)
    mels: list[list[torch.Tensor]] = [[] for _ in scripts]
    for turn in range(4):
        rows = [row for row in range(len(scripts)) if turn < leave_after.get(row, 9)]
        parts = []
        for row in rows:
            _, spoken, hops = scripts[row]
            end = given[row] + hops[turn] if turn < 3 else len(spoken)
            parts.append(spoken[given[row] : end])
            given[row] = end
        for row, mel in zip(
            rows, flow.step([states[row] for row in rows], parts, [turn == 3] * len(rows)), strict=True
        ):
            mels[row].append(mel)
    return [torch.cat(parts, dim=1) for parts in mels]


def test_batched_streams_equal_lone_ones(flow):
    scripts = _scripts()
    for got, (voice, spoken, _) in zip(_play_together(flow, scripts, {}), scripts, strict=True):
        assert_same(got, voice.whole(flow, spoken))


def test_stream_dropped_midway_leaves_the_others(flow):
    scripts = _scripts()
    together = _play_together(flow, scripts, {0: 2, 2: 1})
    for row in (1, 3):
        voice, spoken, _ = scripts[row]
        assert_same(together[row], voice.whole(flow, spoken))
    voice, spoken, _ = scripts[0]
    assert_same(together[0], voice.whole(flow, spoken)[:, : together[0].shape[1]])


def test_streams_of_one_prompt_leave_it_unharmed(flow):
    prompt = Voice(53).prepared(flow)
    tensors = [tensor for rate in prompt.rates for tensor in (rate.kept, *rate.edges)]
    tensors += [prompt.speaker, prompt.pending_tokens, prompt.pending_mel]
    before = [tensor.clone() for tensor in tensors]
    states = [flow.open(prompt) for _ in range(3)]
    parts = [tokens(60, seed) for seed in range(3)]
    mels = flow.step(states, parts, [True] * 3)
    for seed, mel in enumerate(mels):
        assert_same(mel, Voice(53).whole(flow, parts[seed]))
    assert all(torch.equal(now, then) for now, then in zip(tensors, before, strict=True))
    assert prompt.frames == 50  # its second and last block waits for the look-ahead
    assert Voice(53).prepared(flow, tail_tokens=3).frames == 100


@pytest.mark.parametrize("blocks", [1, 2])
def test_prompt_computed_in_turns_equals_one_computed_at_once(flow, blocks):
    voice = Voice(128)
    preparation = flow.begin_prompt(voice.tokens, voice.mel, voice.embedding, 3)
    turns = 1
    while not preparation.advance(blocks):
        turns += 1
    assert turns == 5 // blocks + 5 % blocks
    at_once, in_turns = voice.prepared(flow, tail_tokens=3), preparation.cache()
    for one, other in zip(at_once.rates, in_turns.rates, strict=True):
        assert_same(other.kept, one.kept)
        for edge, expected in zip(other.edges, one.edges, strict=True):
            assert_same(edge, expected)
    assert torch.equal(in_turns.pending_tokens, at_once.pending_tokens)


def test_fewer_steps_of_the_solve_stream_as_they_solve_at_once(weights):
    quick = Flow.from_tensors(weights("mini", "flow"), estimator_head_dim=32, steps=4)
    voice, spoken = Voice(53), tokens(60)
    got = play(quick, voice.opened(quick), spoken, [30])
    assert_same(got, voice.whole(quick, spoken))
    assert not torch.allclose(
        got, voice.whole(Flow.from_tensors(weights("mini", "flow"), estimator_head_dim=32), spoken), atol=1e-3
    )


def test_failed_step_leaves_every_stream_as_it_was(flow, monkeypatch):
    voice, spoken = Voice(25), tokens(80)
    states = [voice.opened(flow) for _ in range(2)]
    flow.step(states, [spoken[:30]] * 2, [False] * 2)

    def broken(*_):
        raise RuntimeError("device lost")

    with monkeypatch.context() as patch:
        patch.setattr(flow.estimator.final_proj, "forward", broken)
        with pytest.raises(RuntimeError, match="device lost"):
            flow.step(states, [spoken[30:]] * 2, [True] * 2)
    for mel in flow.step(states, [spoken[30:]] * 2, [True] * 2):
        assert_same(mel, voice.whole(flow, spoken)[:, 50:])


def test_wrong_calls_are_refused_before_anything_moves(flow):
    voice, spoken = Voice(25), tokens(40)
    state, ended = voice.opened(flow), voice.opened(flow)
    flow.step([ended], [spoken], [True])
    with pytest.raises(ValueError, match="final"):
        flow.step([state, ended], [spoken, spoken], [False, False])
    with pytest.raises(ValueError, match="twice"):
        flow.step([state, state], [spoken, spoken], [False, False])
    with pytest.raises(ValueError, match="noise ends at 15000"):
        flow.step([state], [tokens(7600)], [False])
    with pytest.raises(ValueError, match="not twice"):
        flow.prepare_prompt(voice.tokens, voice.mel[1:], voice.embedding)
    assert_same(play(flow, state, spoken, [30]), voice.whole(flow, spoken))


def test_half_precision_cache_stays_near_and_takes_half_the_memory(flow):
    voice, spoken = Voice(53), tokens(111)
    half, plain = voice.opened(flow, storage=torch.float16), voice.opened(flow)
    # float16 keeps 11 bits: errors of 5e-4 of a key, spread over ten steps; seen: 4e-3 at values up to 6
    assert_same(play(flow, half, spoken, [28, 25]), voice.whole(flow, spoken), 2e-2)
    play(flow, plain, spoken, [28, 25])
    assert half.bytes * 2 == plain.bytes


def test_aligned_prompt_keeps_its_newest_part(flow):
    voice = Voice(58)
    kept_tokens, kept_mel = align_prompt(voice.tokens, voice.mel, 0)
    assert torch.equal(kept_tokens, voice.tokens[8:]) and torch.equal(kept_mel, voice.mel[16:])
    assert len(align_prompt(voice.tokens, voice.mel, 3)[0]) == 53
    short = Voice(24)
    assert len(align_prompt(short.tokens, short.mel, 0)[0]) == 24
    assert len(align_prompt(Voice(26).tokens, Voice(26).mel, 3)[0]) == 26
