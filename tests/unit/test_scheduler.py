"""Which rows step next. Time is a number that the test passes in."""

from studio.engine.scheduler import Playback, RowScheduler
from studio.engine.token_hop import HopSchedule


def started(audio_s: float, first_chunk_s: float = 0.0) -> Playback:
    return Playback(first_chunk_s=first_chunk_s, audio_s=audio_s, voiced_tokens=int(audio_s * 25))


def row_ids(scheduler: RowScheduler, now_s: float) -> list[str]:
    return [step.row_id for step in scheduler.next_batch(now_s)]


def test_row_without_lookahead_waits() -> None:
    scheduler = RowScheduler(8)
    scheduler.admit("a", 25, 0.0)
    scheduler.offer("a", range(27), final=False)
    assert scheduler.next_batch(0.0) == []
    scheduler.offer("a", [27], final=False)
    (step,) = scheduler.next_batch(0.0)
    assert step.tokens.tolist() == list(range(25)) and step.lookahead.tolist() == [25, 26, 27]
    assert not step.final and step.tokens.dtype == "int32"


def test_lookahead_is_shown_again_as_tokens() -> None:
    scheduler = RowScheduler(8)
    scheduler.admit("a", 25, 0.0)
    scheduler.offer("a", range(30), final=True)
    scheduler.next_batch(0.0)
    (last,) = scheduler.next_batch(0.0)
    assert last.tokens.tolist() == [25, 26, 27, 28, 29] and last.final and last.lookahead.size == 0
    assert len(scheduler) == 0


def test_final_without_tokens_closes_the_row() -> None:
    scheduler = RowScheduler(8)
    scheduler.admit("a", 25, 0.0)
    scheduler.offer("a", [], final=True)
    (step,) = scheduler.next_batch(0.0)
    assert step.final and step.tokens.size == 0


def test_first_block_is_as_long_as_open_said() -> None:
    scheduler = RowScheduler(8)
    playback = Playback()
    scheduler.admit("a", 40, 0.0, playback)
    scheduler.offer("a", range(42), final=False)
    assert scheduler.next_batch(0.0) == []
    scheduler.offer("a", range(42, 100), final=False)
    assert scheduler.next_batch(0.0)[0].tokens.size == 40
    playback.first_chunk_s, playback.audio_s = 0.0, 2.0
    assert scheduler.next_batch(0.0)[0].tokens.size == 50


def test_token_hop_restarts_for_each_request() -> None:
    """Upstream kept it on the shared model: the second listener waited for 100 tokens (CosyVoice#1849)."""
    scheduler = RowScheduler(8)
    for name in ("first", "second"):
        playback = Playback()
        scheduler.admit(name, 25, 0.0, playback)
        scheduler.offer(name, range(400), final=False)
        sizes = []
        for _ in range(4):
            sizes.append(scheduler.next_batch(0.0)[0].tokens.size)
            playback.first_chunk_s, playback.audio_s = 0.0, 10.0
        assert sizes == [25, 50, 100, 100]
        scheduler.drop(name)


def test_step_is_no_longer_than_the_sound_in_hand_lasts() -> None:
    for audio_s, size in ((1.2, 25), (2.0, 50), (3.9, 75), (30.0, 100)):
        scheduler = RowScheduler(8)
        scheduler.admit("a", 25, 0.0, Playback(first_chunk_s=0.0, audio_s=audio_s, voiced_tokens=500))
        scheduler.offer("a", range(400), final=False)
        assert scheduler.next_batch(0.0)[0].tokens.size == size


def test_row_that_ran_dry_takes_the_cheapest_step() -> None:
    scheduler = RowScheduler(8)
    scheduler.admit("a", 25, 0.0, Playback(first_chunk_s=0.0, audio_s=5.0, voiced_tokens=500))
    scheduler.offer("a", range(400), final=False)
    assert scheduler.next_batch(9.0)[0].tokens.size == 50


def test_next_segment_of_a_request_goes_on_with_its_large_hop() -> None:
    scheduler = RowScheduler(8)
    scheduler.admit("a.1", 25, 0.0, started(audio_s=10.0))
    scheduler.offer("a.1", range(400), final=False)
    assert scheduler.next_batch(1.0)[0].tokens.size == 100


def test_newcomer_goes_before_a_row_with_sound_in_hand() -> None:
    scheduler = RowScheduler(1)
    scheduler.admit("old", 25, 0.0, started(audio_s=3.0))
    scheduler.admit("new", 25, 1.0)
    for name in ("old", "new"):
        scheduler.offer(name, range(100), final=False)
    assert row_ids(scheduler, 1.0) == ["new"]


def test_row_about_to_run_dry_goes_before_a_newcomer() -> None:
    scheduler = RowScheduler(1)
    scheduler.admit("dry", 25, 0.0, started(audio_s=2.0))
    scheduler.admit("new", 25, 1.9)
    for name in ("dry", "new"):
        scheduler.offer(name, range(100), final=False)
    assert row_ids(scheduler, 1.9) == ["dry"]


def test_comfortable_rows_do_not_lengthen_a_newcomers_first_step() -> None:
    scheduler = RowScheduler(8)
    scheduler.admit("rich", 25, 0.0, started(audio_s=9.0))
    scheduler.admit("poor", 25, 0.0, started(audio_s=2.0))
    scheduler.admit("new", 25, 1.0)
    for name in ("rich", "poor", "new"):
        scheduler.offer(name, range(200), final=False)
    steps = scheduler.next_batch(1.0)
    assert {s.row_id for s in steps} == {"poor", "new"} and {s.tokens.size for s in steps} == {25}


def test_batch_holds_at_most_the_allowed_rows_least_slack_first() -> None:
    scheduler = RowScheduler(2)
    for name, audio_s in (("b", 5.0), ("c", 9.0), ("a", 1.0)):
        scheduler.admit(name, 25, 0.0, started(audio_s))
        scheduler.offer(name, range(30), final=False)
    assert row_ids(scheduler, 0.5) == ["a", "b"]
    assert row_ids(scheduler, 0.5) == ["c"]


def test_paused_row_is_left_out_until_its_listener_reads() -> None:
    scheduler = RowScheduler(2)
    playback = Playback(paused=True)
    scheduler.admit("a", 25, 0.0, playback)
    scheduler.offer("a", range(30), final=True)
    assert scheduler.next_batch(0.0) == []
    playback.paused = False
    assert row_ids(scheduler, 0.0) == ["a"]


def test_nobody_starves_under_overload() -> None:
    """One row a step, each step a second, seven rows that want sound without end: each keeps being served."""
    scheduler = RowScheduler(1)
    playbacks = {f"row {n}": Playback() for n in range(7)}
    for name, playback in playbacks.items():
        scheduler.admit(name, 25, 0.0, playback)
        scheduler.offer(name, range(100_000), final=False)
    last_served = dict.fromkeys(playbacks, 0)
    for second in range(300):
        for step in scheduler.next_batch(float(second)):
            playback = playbacks[step.row_id]
            if playback.first_chunk_s is None:
                playback.first_chunk_s = float(second)
            playback.audio_s += step.tokens.size / 25
            assert second - last_served[step.row_id] <= 40
            last_served[step.row_id] = second
    assert min(last_served.values()) > 250


def test_dropped_row_and_late_offers_are_ignored() -> None:
    scheduler = RowScheduler(2)
    scheduler.admit("a", 25, 0.0)
    scheduler.drop("a")
    scheduler.drop("a")
    scheduler.offer("a", range(50), final=True)
    assert scheduler.next_batch(0.0) == []


def test_newcomer_waits_for_its_first_hop_and_then_goes_on_in_blocks() -> None:
    scheduler = RowScheduler(8, HopSchedule(first_tokens=50))
    playback = Playback()
    scheduler.admit("a", 22, 0.0, playback)
    scheduler.offer("a", range(49), final=False)
    assert scheduler.next_batch(0.0) == []
    scheduler.offer("a", [49], final=False)
    assert scheduler.next_batch(0.0)[0].tokens.size == 47  # the first block is shorter: 22 and 25
    playback.first_chunk_s, playback.audio_s = 0.0, 2.0
    scheduler.offer("a", range(25), final=False)
    assert scheduler.next_batch(0.0)[0].tokens.size == 25


def test_speech_shorter_than_the_first_hop_is_voiced_at_its_end() -> None:
    scheduler = RowScheduler(8, HopSchedule(first_tokens=100))
    scheduler.admit("a", 25, 0.0)
    scheduler.offer("a", range(30), final=True)
    assert scheduler.next_batch(0.0)[0].final


def test_step_waits_for_more_rows_only_while_nobody_would_run_dry() -> None:
    scheduler = RowScheduler(2)
    scheduler.admit("rich", 25, 0.0, started(audio_s=3.0))
    scheduler.offer("rich", range(30), final=False)
    assert not scheduler.may_wait(0.0, 0.1)  # there is nobody else to wait for
    scheduler.admit("behind", 25, 0.0, started(audio_s=3.0))
    assert scheduler.may_wait(0.0, 0.1) and scheduler.may_wait(2.55, 0.1)
    assert not scheduler.may_wait(2.65, 0.1)  # the step takes time, too
    scheduler.offer("behind", range(30), final=False)
    assert not scheduler.may_wait(0.0, 0.1)  # the batch is full
    scheduler.next_batch(0.0)
    assert not scheduler.may_wait(0.0, 0.1)  # nobody is ready


def test_step_waits_for_nobody_whose_listener_has_enough() -> None:
    scheduler = RowScheduler(2)
    paused = started(audio_s=30.0)
    for name, playback in (("rich", started(audio_s=3.0)), ("full", paused)):
        scheduler.admit(name, 25, 0.0, playback)
        scheduler.offer(name, range(30 if name == "rich" else 5), final=False)
    assert scheduler.may_wait(0.0, 0.1)
    paused.paused = True
    assert not scheduler.may_wait(0.0, 0.1)
