"""The next token hop as a function of tokens voiced and waiting."""

import pytest

from studio.engine.token_hop import USUAL_HOPS, HopSchedule, token_hop


@pytest.mark.parametrize(("voiced", "cap"), [(0, 25), (24, 25), (25, 50), (74, 50), (75, 100), (5000, 100)])
def test_cap_doubles_with_what_was_voiced(voiced: int, cap: int) -> None:
    assert USUAL_HOPS.cap_tokens(voiced) == cap


@pytest.mark.parametrize(
    ("schedule", "caps"),
    [
        (HopSchedule(50, 2.0, 200), [50, 100, 200, 200]),
        (HopSchedule(25, 1.5, 100), [25, 50, 75, 100, 100]),
        (HopSchedule(25, 1.0, 100), [25, 25, 25]),
        (HopSchedule(100, 4.0, 100), [100, 100]),
    ],
)
def test_schedule_grows_in_whole_blocks_up_to_its_most(schedule: HopSchedule, caps: list[int]) -> None:
    voiced, found = 0, []
    for _ in caps:
        found.append(schedule.cap_tokens(voiced))
        voiced += found[-1]
    assert found == caps


@pytest.mark.parametrize(("first", "second"), [(13, 41), (22, 50)])
def test_short_first_block_is_followed_by_one_block_as_soon_as_that_is_there(first: int, second: int) -> None:
    assert USUAL_HOPS.first_sound_tokens(first) == first + 3
    assert HopSchedule(50).first_sound_tokens(first) == first + 28
    assert token_hop(first + 3, first, USUAL_HOPS.cap_tokens(0), final=False) == (first, False)
    cap = USUAL_HOPS.cap_tokens(first)
    assert token_hop(second - first - 1, 25, cap, final=False) == (0, False)
    assert token_hop(second - first, 25, cap, final=False) == token_hop(400, 25, cap, final=False) == (25, False)
    assert USUAL_HOPS.cap_tokens(first + 25) == 50


@pytest.mark.parametrize(("waiting", "hop"), [(25, 0), (27, 0), (28, 25), (52, 25), (53, 50), (500, 100)])
def test_unfinished_row_takes_whole_blocks_that_have_their_lookahead(waiting: int, hop: int) -> None:
    assert token_hop(waiting, 25, 100, final=False) == (hop, False)


@pytest.mark.parametrize("waiting", [0, 1, 25, 27, 100, 102])
def test_finished_row_takes_all_that_fits(waiting: int) -> None:
    assert token_hop(waiting, 25, 100, final=True) == (waiting, True)


def test_finished_row_with_more_than_a_cap_goes_on_in_blocks() -> None:
    assert token_hop(103, 25, 100, final=True) == (100, False)
    assert token_hop(28, 25, 25, final=True) == (25, False)


def test_longer_first_block_of_a_short_prompt_is_waited_for() -> None:
    assert token_hop(42, 40, 25, final=False) == (0, False)
    assert token_hop(43, 40, 25, final=False) == (40, False)
    assert token_hop(200, 40, 100, final=False) == (90, False)


@pytest.mark.parametrize("total", [1, 24, 28, 53, 200, 1234])
def test_hops_add_up_to_all_tokens_whatever_the_arrival(total: int) -> None:
    for arrival in (1, 7, 25, total):
        waiting = voiced = came = 0
        done = False
        while not done:
            step = min(arrival, total - came)
            came, waiting = came + step, waiting + step
            hop, done = token_hop(waiting, 25, USUAL_HOPS.cap_tokens(voiced), final=came == total)
            assert done or hop % 25 == 0
            waiting, voiced = waiting - hop, voiced + hop
        assert (waiting, voiced) == (0, total)
