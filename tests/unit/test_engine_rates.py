"""What a player must hold, from the rates measured lately."""

from dataclasses import replace

import pytest

from studio.engine.rates import (
    HELD_BACK_S,
    LEAST_PREBUFFER_S,
    RECENT_REQUESTS,
    UNPROVEN_S,
    Rates,
    first_chunk_s,
    least_prebuffer_s,
)
from studio.engine.scheduler import Playback, RowScheduler
from studio.engine.stats import RequestSummary

USUAL_S = 22 / 25 - HELD_BACK_S
"""Sound of a first chunk of 22 tokens."""
SUMMARY = RequestSummary("id", "voice", "local", 50, 1, 250, 10.0, 0.0, 0.5, 0.5, 2.0, 0.0, "stop")


def rates(rate: float, running: int = 1, text_ids: int = 100) -> Rates:
    """What is known after enough even requests at one rate."""
    measured = Rates()
    for _ in range(RECENT_REQUESTS):
        measured.request_ended(replace(SUMMARY, rate=rate), text_ids, running)
    return measured


def test_fast_studio_needs_next_to_nothing() -> None:
    assert rates(5.0).prebuffer_s(100, 1, 1.0, USUAL_S) == LEAST_PREBUFFER_S


def test_slow_studio_needs_the_part_that_it_cannot_make_in_time() -> None:
    """At rate 0.5 the ten seconds expected take twenty; half of them must be there when playing begins."""
    slow = rates(0.5)
    assert slow.expected_audio_s(100) == 10.0
    assert 5.0 <= slow.prebuffer_s(100, 1, 1.0, USUAL_S) <= 10.0 + LEAST_PREBUFFER_S
    assert slow.prebuffer_s(50, 1, 1.0, USUAL_S) < slow.prebuffer_s(100, 1, 1.0, USUAL_S)


RATES = [0.4, 0.8, 0.95, 1.1, 1.5, 1.9, 2.0, 2.4, 5.0, 7.9, 8.1, 12.0]
PLAYED = [
    (rate, first, speed)
    for rate in RATES
    for speed in (0.5, 1.0, 2.0)
    # A studio that cannot keep up is promised for the usual first block alone: a shorter one may run dry for a moment.
    for first in ((10, 13, 16, 22) if rate > speed else (22,))
]


@pytest.mark.parametrize(("rate", "first", "speed"), PLAYED)
def test_playing_with_the_prebuffer_never_runs_dry(rate: float, first: int, speed: float) -> None:
    """Steps as the scheduler makes them, each as long as the rate says; the player starts when told."""
    chunk_s = first_chunk_s(first + 3, speed)
    held = min(rates(rate).prebuffer_s(100, 1, speed, chunk_s), 9.6 / speed)
    scheduler, playback = RowScheduler(1), Playback()
    scheduler.admit("row", first, 0.0, playback)
    scheduler.offer("row", range(250), final=True)
    now_s, begun_s = 0.0, None
    while steps := scheduler.next_batch(now_s):
        now_s += steps[0].tokens.size / 25 / rate
        if playback.first_chunk_s is None:
            playback.first_chunk_s = now_s
        assert begun_s is None or begun_s + playback.audio_s >= now_s - 1e-9
        playback.audio_s += (steps[0].tokens.size / 25 - (HELD_BACK_S if playback.audio_s == 0 else 0.0)) / speed
        if begun_s is None and playback.audio_s >= held - 1e-9:
            begun_s = now_s
    assert begun_s is not None


def test_speed_asks_for_sound_faster_and_teaches_nothing_wrong() -> None:
    measured = rates(1.0)
    assert measured.prebuffer_s(100, 1, 2.0, USUAL_S) > measured.prebuffer_s(100, 1, 1.0, USUAL_S)
    measured = Rates()
    measured.request_ended(replace(SUMMARY, rate=1.0, speed=2.0), 100, 1)
    assert measured.measured_rate() == 2.0


def test_rate_is_shared_by_those_who_run() -> None:
    measured = rates(2.0, running=1)
    assert measured.measured_rate(1) == 2.0
    assert measured.measured_rate(4) == 0.5
    together = rates(1.0, running=3)
    assert together.measured_rate(3) == pytest.approx(1.0) == together.measured_rate(1)


def test_broken_requests_teach_nothing() -> None:
    measured = Rates()
    measured.request_ended(replace(SUMMARY, reason="aborted"), 100, 1)
    measured.request_ended(replace(SUMMARY, rate=None), 100, 1)
    assert measured.measured_rate() is None


def test_play_whose_chunks_are_in_time_needs_nothing() -> None:
    assert least_prebuffer_s([(0.6, 0.5), (1.0, 1.0), (2.0, 1.0)]) == 0.0


def test_chunk_that_may_come_a_little_later_counts_as_late() -> None:
    """The second chunk is there 10 ms before the first is played out; a player that is told 30 ms later hears a gap."""
    came = [(0.6, 0.5), (1.09, 1.0), (1.2, 1.0)]
    assert least_prebuffer_s(came) == 0.0
    assert 0.5 < least_prebuffer_s(came, later_s=0.03) < 1.5


def test_player_holds_what_the_least_even_of_the_recent_requests_needed() -> None:
    measured = rates(3.0)
    easy_s = measured.prebuffer_s(100, 1, 1.0, USUAL_S)
    measured.request_ended(replace(SUMMARY, rate=3.0, needed_s=0.501), 100, 1)
    assert measured.prebuffer_s(100, 1, 1.0, USUAL_S) == LEAST_PREBUFFER_S + 0.501
    for _ in range(RECENT_REQUESTS):
        measured.request_ended(replace(SUMMARY, rate=3.0), 100, 1)
    assert measured.prebuffer_s(100, 1, 1.0, USUAL_S) == easy_s


def test_unproven_studio_lets_players_wait_for_the_second_block() -> None:
    fresh = Rates()
    fresh.request_ended(replace(SUMMARY, rate=5.0), 100, 1)
    assert fresh.prebuffer_s(100, 1, 1.0, USUAL_S) == LEAST_PREBUFFER_S + UNPROVEN_S


def test_player_waits_for_the_second_chunk_only_where_the_first_is_over_before_it_comes() -> None:
    """A block takes 0.2 s at rate 5 and 0.1 s at rate 10; 13 tokens give 0.125 s of sound, 22 give 0.485 s."""
    short_s, usual_s = (first_chunk_s(tokens + 3, speed=1.0) for tokens in (13, 22))
    assert (short_s, usual_s) == (3000 / 24000, 11640 / 24000)
    assert short_s < rates(5.0).prebuffer_s(100, 1, 1.0, short_s) < short_s + 1.0
    assert rates(5.0).prebuffer_s(100, 1, 1.0, usual_s) < usual_s
    assert rates(11.0).prebuffer_s(100, 1, 1.0, short_s) < short_s
    assert rates(11.0, running=1).prebuffer_s(100, 2, 1.0, short_s) > short_s
    # a text that the first chunk may be all of, as far as is known
    assert rates(5.0).prebuffer_s(0, 1, 1.0, short_s) > short_s


def test_restarted_worker_has_to_prove_itself_again() -> None:
    measured = rates(5.0)
    assert measured.prebuffer_s(100, 1, 1.0, USUAL_S) == LEAST_PREBUFFER_S
    measured.worker_started()
    assert measured.prebuffer_s(100, 1, 1.0, USUAL_S) == LEAST_PREBUFFER_S + UNPROVEN_S


def test_what_a_slow_request_needed_is_not_asked_for_twice() -> None:
    """At rate 0.8 its ten seconds need two in hand, which the rate itself says; only what went beyond is kept."""
    slow = Rates()
    slow.request_ended(replace(SUMMARY, rate=0.8, needed_s=2.3), 100, 1)
    assert slow.prebuffer_s(100, 1, 1.0, USUAL_S) < 2.0 + 1.5 / 0.8
