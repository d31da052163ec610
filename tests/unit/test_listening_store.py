"""Tests, raters and answers survive the end of the process; addresses are good once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from studio.errors import ListeningConflict, NotFound
from studio.listening import store as stores
from studio.listening.answers import Answer, Kind, Role
from studio.listening.arena import next_pair
from studio.listening.blinding import Addresses, blind_wav
from studio.listening.database import Database
from studio.listening.design import Condition, Design, Source
from studio.listening.orders import plan
from studio.listening.raters import RaterStore
from studio.listening.store import Clip, GivenClip, ListeningStore

SOUND = np.full(24_000, 0.1, np.float32)


def design(**how: object) -> Design:
    spoken = Source("speech", "Ada", {"temperature": 0.5})
    return Design(Kind.AB, "t", (Condition("c1", "up"), Condition("c2", "spoken", spoken)), ("a", "b"), **how)  # type: ignore[arg-type]


class Room:
    """The stores over one folder, opened again as after a restart."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 1000.0
        self.database = Database(folder / "tests.sqlite")
        self.store = ListeningStore(folder, self.database, lambda: self.now_s)
        self.raters = RaterStore(self.database, lambda: self.now_s)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def made(room: Room) -> stores.Test:
    test = room.store.create(design(), "owner")
    for condition in ("c1", "c2"):
        room.store.put_clip(test.id, "given", GivenClip("s01", condition, SOUND, 24_000, "a"))
    return test


def test_design_and_clips_come_back_after_a_restart(tmp_path: Path) -> None:
    test = made(Room(tmp_path))
    again = Room(tmp_path).store
    assert again.find(test.id).design == design() and again.find(test.id).state == "draft"
    clips = again.clips(test.id, "given")
    assert list(clips) == [("s01", "c1"), ("s01", "c2")]
    assert np.allclose(again.samples(test.id, clips["s01", "c1"]), SOUND, atol=1e-6)


def test_change_of_what_is_spoken_drops_its_clips_and_no_others(room: Room) -> None:
    test = made(room)
    test = room.store.redesign(test, design(raters=20))
    assert len(room.store.clips(test.id, "given")) == 2
    test = room.store.redesign(test, design(seed=1))
    assert list(room.store.clips(test.id, "given")) == [("s01", "c1")]
    room.store.open(test.id)
    with pytest.raises(ListeningConflict):
        room.store.redesign(test, design(seed=2))
    with pytest.raises(ListeningConflict):
        room.store.open(test.id)


def test_deleted_test_leaves_no_file_and_no_row(room: Room, tmp_path: Path) -> None:
    test = made(room)
    room.raters.join(test, room.store.invite(test.id, "", 2000.0), lambda number: plan(test.design, ["s01"], number))
    room.store.delete(test.id)
    with pytest.raises(NotFound):
        room.store.find(test.id)
    assert not list(tmp_path.glob("files/*/*")) and room.raters.of_test(test.id) == []


def test_invitation_ends_with_its_time(room: Room) -> None:
    test = made(room)
    token = room.store.invite(test.id, "", 1500.0).token
    assert room.store.invitation(token).test == test.id
    room.now_s = 1501.0
    with pytest.raises(NotFound):
        room.store.invitation(token)


def test_progress_draft_and_answers_come_back_after_a_restart(tmp_path: Path) -> None:
    room = Room(tmp_path)
    test = made(room)
    invitation = room.store.invite(test.id, "", 2000.0)
    rater, key = room.raters.join(test, invitation, lambda number: plan(test.design, ["s01", "s02"], number))
    room.raters.serve(rater.id, 0)
    room.store.open(test.id)
    row = Answer(test.id, rater.id, "x", 1, Kind.AB, Role.TEST, "s01", "c1", 1.0, "c2", comment="“quoted”, 中文")
    room.raters.end(rater.id, 0, [row])
    room.raters.end(rater.id, 0, [row])  # sent twice
    room.raters.serve(rater.id, 1)
    room.raters.keep_draft(rater.id, 1, {"scores": [0.5]})
    again = Room(tmp_path).raters
    assert again.known(invitation, key) == rater and again.known(invitation, "guess") is None
    assert again.position(rater.id) == 1 and again.progress(rater.id, 1).draft == {"scores": [0.5]}  # type: ignore[union-attr]
    assert again.answers(test.id) == (row,)


def test_raters_get_numbers_in_turn_and_keep_their_plans(room: Room) -> None:
    test = made(room)
    invitation = room.store.invite(test.id, "", 2000.0)
    raters = [room.raters.join(test, invitation, lambda n: plan(test.design, ["s01"], n))[0] for _ in range(3)]
    assert [rater.number for rater in raters] == [0, 1, 2]
    assert room.raters.find(raters[1].id).plan == plan(test.design, ["s01"], 1)


def test_address_is_good_once_and_for_its_rater_only() -> None:
    addresses = Addresses()
    clips = [Clip("s", c, "f", n, 24_000, "") for c, n in (("c1", 100), ("c2", 140))]
    first, second = addresses.issue("ada", 0, clips)
    assert addresses.take("bob", first) is None
    served = addresses.take("ada", first)
    assert served is not None and served.samples == 140 and served.index == 0
    assert addresses.take("ada", first) is None
    addresses.issue("ada", 0, clips)
    assert addresses.take("ada", second) is None  # new ones make the old ones void


def test_served_bytes_differ_each_time_by_less_than_is_heard() -> None:
    one, two = (np.frombuffer(blind_wav(SOUND, 30_000, 24_000)[44:], "<i2") for _ in range(2))
    assert len(one) == 30_000 and (one != two).any()
    assert np.abs(one[:24_000] - 0.1 * 32767).max() <= 2 and np.abs(one[24_000:]).max() <= 1


def test_arena_asks_for_the_pair_with_the_fewest_votes() -> None:
    three = Design(Kind.AB, "t", tuple(Condition(f"c{n}", f"n{n}") for n in (1, 2, 3)), arena=True)
    vote = lambda a, b: Answer("t", "r", "x", 1, Kind.AB, Role.TEST, "s", a, 1.0, b)  # noqa: E731
    votes = [vote("c1", "c2"), vote("c2", "c3"), vote("c1", "c2")]
    assert {next_pair(three, votes) for _ in range(5)} == {("c1", "c3")}
