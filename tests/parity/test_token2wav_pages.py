"""Where the pages of the flow's pool are too few, rows wait or begin again, and every sound stays what it was."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from studio.backends.fake import ManualClock
from studio.backends.torch_pages import IDLE_S
from studio.backends.torch_rows import TorchToken2Wav
from studio.models.flow.paged import PagedFlow
from studio.protocols import RowStep
from studio.speech import LOOKAHEAD_TOKENS
from tests.parity.test_token2wav_memory import given_up
from tests.parity.test_token2wav_torch import assert_same_sound, mini, speak, speech, voice

PROMPT_TOKENS = 40  # of which one block is cached
NOTHING = np.zeros(0, np.int32)
MANY = 100


def paged(pages: int, clock: ManualClock | None = None) -> TorchToken2Wav:
    """token2wav whose pool has so many pages to give out, of which each voice takes one."""
    made = mini("pages", flow_steps=2, voice_cache=4, pages=pages)
    if clock is not None:
        assert made._turns is not None
        made._clock = made._turns._clock = clock
    return made


def free(token2wav: TorchToken2Wav) -> int:
    return token2wav.stats().flow_pages_free


def own_pages(token2wav: TorchToken2Wav) -> list[int]:
    """Of each open row, beside those of its voice."""
    page_bytes = token2wav.stats().flow_page_bytes
    return [0 if row.flow is None else row.flow.bytes // page_bytes for row in token2wav._rows.values()]


def steps(tokens: Sequence[int], hop: int, first: int) -> list[RowStep]:
    """What the engine sends of one row: a first block, hops, and all that is left."""
    borders = [0, *range(first, len(tokens) - LOOKAHEAD_TOKENS, hop), len(tokens)]
    made = []
    for begin, end in pairwise(borders):
        ahead = NOTHING if end == len(tokens) else np.asarray(tokens[end : end + LOOKAHEAD_TOKENS], np.int32)
        made.append(RowStep("", np.asarray(tokens[begin:end], np.int32), ahead, end == len(tokens)))
    return made


def of(row_id: str, step: RowStep) -> RowStep:
    return RowStep(row_id, step.tokens, step.lookahead, step.final)


def test_pool_tells_its_pages_and_rows_that_leave_give_theirs_back() -> None:
    token2wav = paged(10)
    assert isinstance(token2wav._flow, PagedFlow) and (token2wav.stats().flow_pages, free(token2wav)) == (
        10,
        10,
    )
    for row_id in "ab":
        first = token2wav.open(row_id, voice(0, PROMPT_TOKENS), 0)
    assert (free(token2wav), token2wav.stats().flow_pages_shared) == (9, 1)
    hop = next(iter(steps(speech(0, 90), 25, first)))
    token2wav.step([of(row_id, hop) for row_id in "ab"])
    assert free(token2wav) == 7
    token2wav.drop("a")  # its client left
    token2wav.drop("a")
    assert (free(token2wav), token2wav.stats().flow_pages_shared) == (8, 1)
    token2wav.step([RowStep("b", NOTHING, NOTHING, True)])
    assert (free(token2wav), token2wav.stats().flow_pages_shared) == (9, 0)
    token2wav._voices.forget(token2wav.key_of(voice(0, PROMPT_TOKENS)))
    assert free(token2wav) == 10


def test_rows_of_too_few_pages_wait_and_begin_again_and_sound_as_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four rows that take five pages each, of a pool that has three voices in it and nine more."""
    rows = [(voice(n % 3, PROMPT_TOKENS), speech(n, 85 + 5 * n)) for n in range(4)]
    wide, narrow = paged(MANY), paged(12)
    expected = [speak(wide, [row], 50)[0] for row in rows]
    told = given_up(narrow, monkeypatch)
    for sound, alone in zip(speak(narrow, rows, 50), expected, strict=True):
        assert_same_sound(sound, alone)
    assert "smaller_batch" in told and "recompute" in told and narrow.stats().rows_uncached == 0
    assert free(narrow) == 12 - narrow.stats().voices_cached


def test_row_whose_listener_does_not_read_gives_its_pages_to_one_that_goes_on() -> None:
    clock = ManualClock()
    token2wav, tokens = paged(7, clock), speech(0, 98)
    (expected,) = speak(paged(MANY), [(voice(0, PROMPT_TOKENS), tokens)], 98)
    hops = steps(tokens, 25, token2wav.open("idle", voice(0, PROMPT_TOKENS), 7))
    heard = [token2wav.step([of("idle", hop)])[0].samples for hop in hops[:3]]
    clock.advance(IDLE_S + 1)
    token2wav.open("busy", voice(0, PROMPT_TOKENS), 7)
    busy = [token2wav.step([of("busy", hop)])[0].samples for hop in hops]
    assert own_pages(token2wav) == [0]
    assert_same_sound(np.concatenate([part for part in busy if part is not None]), expected)
    heard += [token2wav.step([of("idle", hop)])[0].samples for hop in hops[3:]]
    assert_same_sound(np.concatenate([part for part in heard if part is not None]), expected)
    assert len(heard[0]) and len(heard) == len(busy) == len(hops)  # type: ignore[arg-type]


def test_later_row_waits_for_an_earlier_one_and_takes_nothing_from_it() -> None:
    clock = ManualClock()
    token2wav, tokens = paged(5, clock), speech(0, 98)
    hops = steps(tokens, 25, token2wav.open("early", voice(0, PROMPT_TOKENS), 7))
    token2wav.open("late", voice(0, PROMPT_TOKENS), 7)
    lengths = []
    for hop in hops:
        results = token2wav.step([of("late", hop), of("early", hop)] if not hop.final else [of("early", hop)])
        lengths.append([len(result.samples) for result in results if result.samples is not None])
    assert lengths[0][0] and lengths[2] == [0, lengths[2][1]] and lengths[2][1]
    (last,) = token2wav.step([of("late", hops[-1])])
    assert last.samples is not None and sum(late for late, _ in lengths[:-1]) + len(last.samples) == 98 * 960


def test_row_longer_than_the_pool_and_a_voice_without_room_are_computed_without_pages() -> None:
    long = (voice(0, PROMPT_TOKENS), speech(0, 130))
    (expected,) = speak(paged(MANY), [long], 50)
    for pages in (4, 1):
        token2wav = paged(pages)
        if pages == 1:
            token2wav._flow.pool.take(1)  # type: ignore[attr-defined]
        (sound,) = speak(token2wav, [long], 50)
        assert_same_sound(sound, expected)


def test_newcomers_voice_takes_pages_of_the_row_opened_last() -> None:
    token2wav, tokens = paged(6), speech(0, 73)
    hops = steps(tokens, 25, token2wav.open("a", voice(0, PROMPT_TOKENS), 7))
    token2wav.open("b", voice(0, PROMPT_TOKENS), 7)
    for hop in hops[:2]:
        token2wav.step([of(row_id, hop) for row_id in "ab"])
    token2wav._flow.pool.take(free(token2wav))  # type: ignore[attr-defined] - somebody else's
    token2wav.open("new", voice(1, PROMPT_TOKENS), 7)
    assert token2wav.stats().rows_uncached == 0
    assert own_pages(token2wav) == [2, 0, 0]
