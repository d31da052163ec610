"""Places to run and places to wait, without an event loop."""

import pytest

from studio.engine.admission import Admission, Ticket
from studio.errors import EngineDraining, QueueFull


def running(*tickets: Ticket) -> list[bool]:
    return [ticket.granted.is_set() for ticket in tickets]


def test_places_are_given_at_once_while_there_are_some() -> None:
    admission = Admission(max_running=2, queue_size=2, max_per_client=9)
    tickets = [admission.enter(str(n), "a") for n in range(3)]
    assert running(*tickets) == [True, True, False]
    assert (admission.running, admission.waiting) == (2, 1)
    tickets[0].leave()
    assert running(*tickets) == [True, True, True] and admission.waiting == 0


def test_clients_take_turns_and_positions_say_so() -> None:
    admission = Admission(max_running=1, queue_size=9, max_per_client=9)
    first = admission.enter("0", "a")
    a1, a2, b1, b2 = (admission.enter(name, name[0]) for name in ("a1", "a2", "b1", "b2"))
    assert [t.ahead() for t in (first, a1, b1)] == [[], [], ["a1"]]
    assert b2.ahead() == ["a1", "b1", "a2"]
    order = []
    current = first
    for _ in range(4):
        current.leave()
        current = next(t for t in (a1, a2, b1, b2) if t.granted.is_set() and t.request_id not in order)
        order.append(current.request_id)
    assert order == ["a1", "b1", "a2", "b2"]


def test_urgent_request_goes_before_its_own_and_never_before_others() -> None:
    admission = Admission(max_running=1, queue_size=9, max_per_client=9)
    admission.enter("0", "a")
    for name in ("a1", "b1", "a2"):
        admission.enter(name, name[0])
    urgent = [admission.enter(name, "b", urgent=True) for name in ("b-urgent", "b-urgent-too")]
    assert urgent[0].ahead() == ["a1"]
    assert urgent[1].ahead() == ["a1", "b-urgent", "a2"]


def test_queue_of_no_length_still_lets_run() -> None:
    admission = Admission(max_running=1, queue_size=0, max_per_client=9)
    ticket = admission.enter("0", "a")
    with pytest.raises(QueueFull):
        admission.enter("1", "b")
    ticket.leave()
    assert running(admission.enter("2", "b")) == [True]


def test_wait_is_estimated_from_what_requests_took() -> None:
    admission = Admission(max_running=2, queue_size=9, max_per_client=9)
    for _ in range(50):
        admission.measured(30.0)
    assert admission.expected_wait_s(0) == pytest.approx(15.0)
    assert admission.expected_wait_s(3) == pytest.approx(60.0)


def test_leaving_twice_or_while_waiting_changes_nothing_for_others() -> None:
    admission = Admission(max_running=1, queue_size=9, max_per_client=9)
    first, second, third = (admission.enter(str(n), "a") for n in range(3))
    second.leave()
    second.leave()
    assert running(first, third) == [True, False] and admission.waiting == 1
    first.leave()
    first.leave()
    assert running(third) == [True] and admission.running == 1


def test_draining_lets_nobody_in_and_nobody_down() -> None:
    admission = Admission(max_running=1, queue_size=9, max_per_client=9)
    first, second = admission.enter("0", "a"), admission.enter("1", "a")
    admission.drain()
    with pytest.raises(EngineDraining):
        admission.enter("2", "a")
    first.leave()
    assert running(second) == [True]


def test_place_that_is_given_back_after_full_memory_goes_to_who_waits() -> None:
    admission = Admission(max_running=3, queue_size=9, max_per_client=9)
    tickets = [admission.enter(str(n), "a") for n in range(6)]
    admission.narrow()
    tickets[0].leave()
    assert running(*tickets[3:]) == [False, False, False]  # two places, both taken
    admission.measured(1.0)
    assert admission.running == admission.places == 3
