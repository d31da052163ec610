"""Where memory is full, token2wav gives up one thing after the other, and the sound stays what it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
import torch

from studio.backends.torch_ladder import CALM_RUNS, UNBOUNDED_ROWS, Ladder
from studio.backends.torch_rows import TorchToken2Wav
from studio.errors import EngineDead
from studio.models.flow import FlowState, stream
from studio.protocols import RowStep
from tests.parity.test_token2wav_torch import assert_same_sound, mini, ready, speak, speech, voice

FULL = torch.OutOfMemoryError("scripted: full")
NOTHING = np.zeros(0, np.int32)


@pytest.fixture
def make() -> Callable[..., TorchToken2Wav]:
    """token2wav on mini random weights, whose caches grow."""
    return partial(mini, "grown")


class Allocator:
    """Stands for a GPU's: a stage that asks for more than is left finds memory full. Limits are of one call."""

    def __init__(self, token2wav: TorchToken2Wav, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = self.hop_tokens = self.frames = 1 << 30
        self.vocoder_rows = self.whole_frames = 1 << 30
        flow, hift = token2wav._flow, token2wav._hift
        step, vocode, synthesize = flow.step, hift.step, flow.synthesize

        def flow_step(states: Sequence[FlowState], tokens: Sequence[torch.Tensor], finals: Sequence[bool]) -> object:
            cached = max(state.frames + 2 * len(new) for state, new in zip(states, tokens, strict=True))
            if len(states) > self.rows or max(map(len, tokens)) > self.hop_tokens or cached > self.frames:
                raise FULL
            return step(states, tokens, finals)

        def hift_step(states: Sequence[object], *given: object) -> object:
            made = vocode(states, *given)  # it fails late, when its states are changed
            if len(states) > self.vocoder_rows:
                raise FULL
            return made

        def whole(tokens: torch.Tensor, *given: object, **how: object) -> object:
            if 2 * len(tokens) > self.whole_frames:
                raise FULL
            return synthesize(tokens, *given, **how)

        monkeypatch.setattr(flow, "step", flow_step)
        monkeypatch.setattr(hift, "step", hift_step)
        monkeypatch.setattr(flow, "synthesize", whole)


ROWS = [(voice(n, 40), speech(n, 50)) for n in range(2)]


def given_up(token2wav: TorchToken2Wav, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What steps tell from now on."""
    told: list[str] = []
    step = token2wav.step

    def listening(rows: Sequence[RowStep]) -> object:
        results = step(rows)
        told.extend(rung for result in results for rung in result.given_up)
        return results

    monkeypatch.setattr(token2wav, "step", listening)
    return told


def test_batch_that_finds_no_memory_is_halved_and_every_sample_is_that_of_the_row_alone(
    make: Callable[..., TorchToken2Wav], monkeypatch: pytest.MonkeyPatch
) -> None:
    token2wav = make()
    alone = [speak(token2wav, [row], 31)[0] for row in ROWS]
    allocator, told = Allocator(token2wav, monkeypatch), given_up(token2wav, monkeypatch)
    allocator.rows = 1
    for sound, expected in zip(speak(token2wav, ROWS, 31), alone, strict=True):
        assert np.array_equal(sound, expected)
    assert told == ["smaller_batch"] and token2wav._ladder.most_rows == 1  # learnt: not tried again at each step
    allocator.rows, allocator.vocoder_rows = 8, 1
    token2wav._ladder.most_rows = UNBOUNDED_ROWS
    for sound, expected in zip(speak(token2wav, ROWS[:2], 31), alone, strict=False):
        assert_same_sound(sound, expected)
    assert told == ["smaller_batch"] * 2


def test_row_whose_cache_has_no_room_goes_down_to_being_computed_again_and_sounds_the_same(
    make: Callable[..., TorchToken2Wav], monkeypatch: pytest.MonkeyPatch
) -> None:
    token2wav = make()
    long = [(ROWS[0][0], speech(0, 100))]
    (expected,) = speak(token2wav, long, 100)
    token2wav.prepare(ROWS[1][0])  # nobody uses it, so it goes first
    allocator, told = Allocator(token2wav, monkeypatch), given_up(token2wav, monkeypatch)
    allocator.hop_tokens = 28
    (short_hops,) = speak(token2wav, long, 100)
    assert_same_sound(short_hops, expected)
    assert told == ["forget_voices", "smaller_hop"] and ready(token2wav._voices) == ["voice 0"]
    told.clear()
    allocator.frames = 130  # the second block of the speech would go beyond
    (uncached,) = speak(token2wav, long, 100)
    assert_same_sound(uncached, expected)
    assert told == ["smaller_hop", "recompute"]


def test_step_that_finds_no_memory_at_its_very_end_has_moved_nobody(
    make: Callable[..., TorchToken2Wav], monkeypatch: pytest.MonkeyPatch
) -> None:
    token2wav = make()
    (expected,) = speak(token2wav, ROWS[:1], 60)
    part, calls = stream.parted_edges, []

    def full_once(*given: object) -> object:
        calls.append(given)
        if len(calls) == 2:
            raise FULL
        return part(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(stream, "parted_edges", full_once)
    (sound,) = speak(token2wav, ROWS[:1], 60)
    assert_same_sound(sound, expected)
    assert len(calls) > 2


def test_largest_cache_goes_first_and_all_streams_end_only_when_none_is_left(
    make: Callable[..., TorchToken2Wav], monkeypatch: pytest.MonkeyPatch
) -> None:
    token2wav = make()
    for name, (prompt, _) in zip(("long", "short"), ROWS, strict=False):
        first = token2wav.open(name, prompt, 7)
    token2wav.step([RowStep("long", np.array(ROWS[0][1][:first], np.int32), np.zeros(3, np.int32), False)])
    allocator = Allocator(token2wav, monkeypatch)
    allocator.frames = allocator.whole_frames = 0
    last = RowStep("short", np.array(ROWS[1][1], np.int32), NOTHING, True)
    order: list[str] = []
    forget = token2wav._forget_largest

    def forgetting() -> bool:
        forgot = forget()
        order.append(",".join(name for name, row in token2wav._rows.items() if row.flow is None))
        return forgot

    monkeypatch.setattr(token2wav, "_forget_largest", forgetting)
    with pytest.raises(EngineDead, match="memory is full"):
        token2wav.step([last])
    assert order[:2] == ["long", "long,short"]


def test_voice_without_room_for_its_prompt_is_spoken_without_a_cache(
    make: Callable[..., TorchToken2Wav], monkeypatch: pytest.MonkeyPatch
) -> None:
    token2wav = make()
    first = token2wav.open("row", ROWS[0][0], 7)
    token2wav.drop("row")
    (expected,) = speak(token2wav, ROWS[:1], 60)
    token2wav._voices.evict(())

    def full(*_: object) -> object:
        raise FULL

    monkeypatch.setattr(stream, "step", full)
    assert token2wav.prepare(ROWS[0][0])
    assert token2wav.open("row", ROWS[0][0], 7) == first
    assert token2wav.stats().rows_uncached == 1 and token2wav.stats().state_bytes == 0
    assert not token2wav._voices._begun  # what was computed of the prompt holds no memory either
    token2wav.drop("row")
    (sound,) = speak(token2wav, ROWS[:1], 60)
    assert_same_sound(sound, expected)


def test_pool_bounds_what_rows_and_voices_keep(
    make: Callable[..., TorchToken2Wav], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = speak(make(), ROWS[:2], 60)
    token2wav = make(pool_bytes=1)
    told = given_up(token2wav, monkeypatch)
    for sound, whole in zip(speak(token2wav, ROWS[:2], 60), expected, strict=True):
        assert_same_sound(sound, whole)
    assert set(told) == {"recompute", "forget_voices"} and token2wav.stats().voices_cached == 0


def test_caches_in_half_precision_take_half_the_memory(make: Callable[..., TorchToken2Wav]) -> None:
    sizes, sounds = [], []
    for precision in ("float32", "float16"):
        token2wav = make(flow_precision=precision)
        sounds.append(speak(token2wav, ROWS[:1], 60)[0])
        sizes.append(token2wav._voices.get(token2wav._voices.of(ROWS[0][0])).rates[2].kept.nbytes)
    assert sizes[1] * 2 == sizes[0]
    error = np.sqrt(np.mean((sounds[1] - sounds[0]) ** 2) / np.mean(sounds[0] ** 2))
    assert 0 < error < 0.3  # rounding of keys moves the pitch by a little, and its phase adds that up


def test_larger_batches_are_tried_again_after_a_calm_while() -> None:
    ladder = Ladder()
    ladder.halve(8)
    for _ in range(CALM_RUNS):
        assert ladder.most_rows == 4
        ladder.went_well()
    assert ladder.most_rows == 8
    assert ladder.told() == ("smaller_batch",) and ladder.told() == ()
