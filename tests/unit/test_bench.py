"""The bench's arithmetic: what a listener would have heard, and the figures of a load."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest

from studio.backends.fake import ManualClock
from studio.bench import lm_step, seeds
from studio.bench.figures import Play, littles_law, percentile, row, table
from studio.bench.load import Line, closed_loop, for_seconds, lines_of, open_loop
from studio.bench.playback import Arrival, Heard, play
from studio.bench.watch import counted
from studio.errors import NoSpeech


def arrivals(*pairs: tuple[float, float]) -> list[Arrival]:
    return [Arrival(at_s, audio_s) for at_s, audio_s in pairs]


def test_sound_that_keeps_ahead_is_heard_from_the_first_chunk_without_a_gap() -> None:
    heard = play(arrivals((0.5, 0.5), (0.9, 1.0), (1.9, 1.0)), prebuffer_s=0.0, ended_s=1.9)
    assert heard == Heard(first_sound_s=0.5, underruns=0, dry_s=0.0)


def test_play_begins_once_the_prebuffer_is_full() -> None:
    assert play(arrivals((0.5, 0.5), (1.5, 1.0), (2.5, 1.0)), 1.2, 2.5).first_sound_s == 1.5


def test_prebuffer_longer_than_the_whole_waits_for_the_end_only() -> None:
    assert play(arrivals((0.5, 0.5), (0.8, 0.3)), 5.0, 1.1) == Heard(1.1, 0, 0.0)


def test_late_sound_is_one_underrun_and_the_silence_before_it_goes_on() -> None:
    # 0.5 s are played by 1.0; the next come at 1.4 and are as much as must be held after a gap
    heard = play(arrivals((0.5, 0.5), (1.4, 1.0), (1.6, 1.0)), 0.0, 1.6)
    assert (heard.underruns, pytest.approx(heard.dry_s)) == (1, 0.4)


def test_after_a_gap_twice_the_prebuffer_is_held_before_it_goes_on() -> None:
    # dry at 0.9; 0.3 s come at 1.0, but 0.8 must be held, which are there at 1.5
    heard = play(arrivals((0.5, 0.4), (1.0, 0.3), (1.5, 0.5), (1.9, 0.5)), 0.4, 1.9)
    assert (heard.underruns, pytest.approx(heard.dry_s)) == (1, 0.6)


def test_gaps_are_counted_each() -> None:
    heard = play(arrivals((0.0, 0.1), (1.0, 0.2), (2.0, 0.4), (3.0, 1.0)), 0.0, 3.0)
    assert heard.underruns == 3


@pytest.mark.parametrize(
    "came",
    [
        arrivals((0.5, 0.5), (1.0, 0.5), (1.4, 0.5)),
        arrivals((0.5, 0.5), (1.4, 1.0), (2.6, 1.0), (3.4, 1.0)),
        arrivals((0.2, 1.0), (3.0, 0.5)),
    ],
)
def test_least_prebuffer_leaves_no_gap_and_less_does(came: list[Arrival]) -> None:
    ended_s = came[-1].at_s
    least_s = Play(tuple(came), ended_s, 0.0).least_prebuffer_s()
    assert play(came, least_s, ended_s).underruns == 0
    assert least_s == 0 or play(came, least_s - 0.01, ended_s).underruns > 0


def test_percentile_is_a_value_that_occurred() -> None:
    values = [float(n) for n in range(1, 11)]
    assert [percentile(values, share) for share in (0.5, 0.95, 0.99, 1.0)] == [5.0, 10.0, 10.0, 10.0]
    assert percentile([3.0], 0.01) == 3.0


def test_row_counts_sound_against_the_whole_loads_time() -> None:
    smooth = Play(tuple(arrivals((0.5, 0.5), (0.8, 1.5))), 0.8, prebuffer_s=0.0)
    broken = Play(tuple(arrivals((1.0, 0.5), (2.0, 1.5))), 2.0, prebuffer_s=0.5)
    figures = row(2, [smooth, broken], failures=1, wall_s=2.0)
    assert figures["audio_s_per_s"] == 2.0 and figures["clip_s"] == 2.0
    assert (figures["ttfa_p50_ms"], figures["ttfa_p95_ms"]) == (500, 1000)
    assert (figures["underruns"], figures["continuity"], figures["failures"]) == (1, 0.5, 1)
    assert figures["rtf_p95"] == 1.0


def test_load_that_failed_altogether_is_still_a_row() -> None:
    assert row(4, [], failures=7, wall_s=1.0) == {"streams": 4, "plays": 0, "failures": 7}


def test_table_has_a_dash_where_a_row_has_no_figure() -> None:
    assert table([{"a": 1, "b": 22}, {"a": 333}]).split("\n") == ["  a   b", "  1  22", "333   -"]


def test_seeds_that_part_are_told_by_where_they_part() -> None:
    alone = [[1, 2, 3], [4, 5, 6], [7, 8], [9]]
    beside = [[1, 2, 3], [4, 0, 6], [7, 8, 9], [9]]
    found = seeds.agreement(alone, beside)
    assert found == {"requests": 4, "tokens": 9, "same": 2, "parted_least": 1, "parted_p50": 1.5}
    assert seeds.agreement(alone, alone)["parted_p50"] is None


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        ({"seed_holds": "beside_others", "same": 4, "requests": 4}, True),
        ({"seed_holds": "beside_others", "same": 3, "requests": 4}, False),
        ({"seed_holds": "alone", "same": 3, "requests": 4}, True),
        ({"failed": "no room"}, False),
    ],
)
def test_a_promise_that_one_seed_breaks_fails_the_run(row: dict[str, object], kept: bool) -> None:
    assert seeds.is_kept(row) is kept


async def test_load_speaks_each_line_once_and_keeps_what_failed() -> None:
    spoken: list[int] = []

    async def speak(line: Line) -> Play:
        spoken.append(line.seed)
        if line.seed == 3:
            raise NoSpeech("speech.none")
        return Play(tuple(arrivals((0.5, 1.0))), 0.5, 0.0)

    load = await closed_loop(speak, islice(lines_of("Ada", 3), 5), streams=2)
    assert sorted(spoken) == [1, 2, 3, 4, 5]
    assert len(load.plays) == 4 and load.failures[0].startswith("NoSpeech: ")


async def test_load_that_is_cancelled_ends_all_its_listeners() -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def speak(line: Line) -> Play:
        begun.append(line.seed)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(line.seed)
        raise AssertionError

    load = asyncio.create_task(closed_loop(speak, lines_of("Ada", 3), streams=3))
    while len(begun) < 3:
        await asyncio.sleep(0)
    load.cancel()
    await asyncio.gather(load, return_exceptions=True)
    assert sorted(ended) == [1, 2, 3]


def test_lines_end_with_the_time_but_never_before_the_first() -> None:
    clock = ManualClock()
    lines = for_seconds(2.0, lines_of("Ada", 3), clock)
    assert next(lines).seed == 1
    clock.advance(1.9)
    assert next(lines).seed == 2
    clock.advance(0.2)
    assert next(lines, None) is None
    clock.advance(100)
    late = for_seconds(0.0, lines_of("Ada", 3), clock)
    assert [line.seed for line in late] == [1]


async def test_studio_that_refuses_at_once_is_not_asked_without_end() -> None:
    asked: list[int] = []

    async def speak(line: Line) -> Play:
        asked.append(line.seed)
        raise NoSpeech("speech.none")

    load = asyncio.create_task(closed_loop(speak, lines_of("Ada", 3), streams=1))
    while not asked:
        await asyncio.sleep(0)  # which others could not, if it never paused
    load.cancel()
    await asyncio.gather(load, return_exceptions=True)
    assert load.cancelled()


def test_what_clients_saw_is_held_against_the_servers_own_count() -> None:
    plays = [Play(tuple(arrivals((1.0, 1.0))), 2.0, 0.0) for _ in range(5)]  # one after the other: one in flight
    assert littles_law(plays, 10.0, [1, 1, 1, 1]) == {"in_flight": 1.0, "little": 1.0}
    assert littles_law(plays, 10.0, [2, 2]) == {"in_flight": 2.0, "little": 0.5}
    assert littles_law([], 10.0, [1.0]) == littles_law(plays, 10.0, []) == {}


def test_requests_in_flight_are_those_running_and_waiting() -> None:
    running, waiting = (f'studio_requests_{state}{{model="m"}}' for state in ("running", "waiting"))
    page = f"# TYPE studio_requests_running gauge\n{running} 3.0\n{waiting} 2.0\nup 1\n"
    assert counted(page) == 5


async def test_listeners_of_an_open_loop_do_not_wait_for_each_other() -> None:
    begun: list[str] = []
    all_begun = asyncio.Event()

    async def speak(line: Line) -> Play:
        begun.append(line.text)
        if len(begun) == 4:
            all_begun.set()
        await all_begun.wait()  # none ends before the last has come
        if line.seed == 2:
            raise NoSpeech("speech.none")
        return Play(tuple(arrivals((1.0, 1.0))), 1.0, 0.0)

    load = await open_loop(speak, islice(lines_of("a", 3), 4), per_s=1e6)
    assert len(begun) == 4 and len(load.plays) == 3 and len(load.failures) == 1


def test_steps_are_counted_by_token_for_deltas_that_came_together() -> None:
    figures = lm_step.step_figures([0.01, 0.03], [(0.004, 1), (0.004, 2), (0.006, 1)], tokens=6, wall_s=0.5)
    assert (figures["step_p50_ms"], figures["step_p99_ms"], figures["tokens_per_s"]) == (4.0, 6.0, 12.0)
    assert (figures["first_token_p50_ms"], figures["tokens_per_delta"]) == (10.0, 1.33)
