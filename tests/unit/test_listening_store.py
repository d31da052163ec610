"""Tests, raters and answers survive the end of the process; addresses are good once."""

from __future__ import annotations

import io
import zipfile
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
from studio.listening.export import export
from studio.listening.headphones import softest
from studio.listening.orders import plan
from studio.listening.raters import Rater, RaterStore
from studio.listening.scoring import Reply
from studio.listening.sessions import Session, Sessions
from studio.listening.store import Clip, GivenClip, ListeningStore

SOUND = np.full(24_000, 0.1, np.float32)


def design(**how: object) -> Design:
    spoken = Source("speech", "Ada", {"temperature": 0.5})
    return Design(Kind.AB, "t", (Condition("c1", "up"), Condition("c2", "spoken", spoken)), ("a", "b"), **how)  # type: ignore[arg-type]


class Room:
    """The stores over one folder, opened again as after a restart."""

    def __init__(self, folder: Path, now_s: float = 1000.0) -> None:
        self.now_s = now_s
        self.database = Database(folder / "tests.sqlite")
        self.store = ListeningStore(folder, self.database, lambda: self.now_s)
        self.raters = RaterStore(self.database, lambda: self.now_s)
        self.sessions = Sessions(self.store, self.raters, Addresses(), lambda: self.now_s)

    def join(self, test: stores.Test) -> Rater:
        """Somebody who comes by a link of their own."""
        invitation = self.store.invite(test.id, "", 2000.0)
        return self.raters.join(test, invitation, "key", lambda number: plan(test.design, ["s01"], number))


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
    room.join(test)
    room.store.delete(test.id)
    with pytest.raises(NotFound):
        room.store.find(test.id)
    assert not list(tmp_path.glob("files/*/*")) and room.raters.of_test(test.id) == []


def test_clip_that_is_ready_after_its_test_was_deleted_leaves_no_file(room: Room, tmp_path: Path) -> None:
    test = made(room)
    room.store.delete(test.id)
    with pytest.raises(NotFound):
        room.store.put_clip(test.id, "given", GivenClip("s02", "c1", SOUND, 24_000, "b"))
    assert not list((tmp_path / "files").iterdir())


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
    rater = room.raters.join(test, invitation, "key", lambda number: plan(test.design, ["s01", "s02"], number))
    room.raters.serve(rater.id, 0)
    room.store.open(test.id)
    row = Answer(test.id, rater.id, "x", 1, Kind.AB, Role.TEST, "s01", "c1", 1.0, "c2", comment="“quoted”, 中文")
    room.raters.end(rater.id, 0, [row])
    room.raters.end(rater.id, 0, [row])  # sent twice
    room.raters.serve(rater.id, 1)
    room.raters.keep_draft(rater.id, 1, {"scores": [0.5]})
    again = Room(tmp_path).raters
    assert again.known(invitation, "key") == rater and again.known(invitation, "guess") is None
    assert again.position(rater.id) == 1 and again.progress(rater.id, 1).draft == {"scores": [0.5]}  # type: ignore[union-attr]
    assert again.answers(test.id) == (row,)


def test_raters_get_numbers_in_turn_and_keep_their_plans(room: Room) -> None:
    test = made(room)
    raters = [room.join(test) for _ in range(3)]
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


def opened(room: Room, **how: object) -> str:
    """An open test whose two clips last a second; gives a link that is good for long."""
    test = room.store.create(design(**how), "owner")
    for condition in ("c1", "c2"):
        room.store.put_clip(test.id, "ready", GivenClip("s01", condition, SOUND, 24_000, "a"))
    room.store.open(test.id)
    return room.store.invite(test.id, "", 1e6).token


def come(room: Room, token: str) -> Session:
    """The same browser, for the first time or again."""
    return room.sessions.session(token, "key") or room.sessions.join(token, True, "key")


def test_headphone_check_goes_on_after_a_restart_at_the_round_where_it_stopped(tmp_path: Path) -> None:
    room = Room(tmp_path)
    token = opened(room, headphones="require")
    for number in (1, 2, 3):
        room.sessions.choose_tone(come(room, token), number, 0)
    room = Room(tmp_path)
    assert room.sessions.view(come(room, token))["number"] == 4
    room.sessions.choose_tone(come(room, token), 3, 1)  # that round is over
    assert come(room, token).rater.tones == (0, 0, 0)
    with pytest.raises(ListeningConflict):
        room.sessions.choose_tone(come(room, token), 5, 1)  # and that one has not come


def test_another_try_of_the_headphone_check_has_other_tones_and_counts_alone(tmp_path: Path) -> None:
    room = Room(tmp_path)
    token = opened(room, headphones="require")
    me = come(room, token).rater.id
    for number in range(1, 7):
        room.sessions.choose_tone(come(room, token), number, (softest(me, number)[0] + 1) % 3)
    assert room.sessions.view(come(room, token))["phase"] == "no_headphones"
    room = Room(tmp_path)
    room.sessions.check_headphones_again(come(room, token))
    assert room.sessions.view(come(room, token))["number"] == 7
    assert [softest(me, n) for n in range(1, 7)] != [softest(me, n) for n in range(7, 13)]
    for number in range(7, 13):
        room.sessions.choose_tone(come(room, token), number, softest(me, number)[0])
    assert room.sessions.view(come(room, token))["phase"] == "trial"
    room.sessions.check_headphones_again(come(room, token))  # who has passed stays passed
    assert come(room, token).rater.headphones == 6


def test_time_of_a_trial_runs_on_over_reloads_and_restarts(tmp_path: Path) -> None:
    room = Room(tmp_path)
    token = opened(room, headphones="off", timeout_s=30)
    spent = []
    for _ in range(3):
        spent.append(room.sessions.view(come(room, token))["trial"]["spent_s"])
        room.now_s += 12
    room = Room(tmp_path, room.now_s)
    spent.append(room.sessions.view(come(room, token))["trial"]["spent_s"])
    assert spent == [0, 12, 24, 36]
    room.now_s += 5
    assert room.sessions.view(come(room, token))["phase"] == "finished"  # the only trial, passed over
    assert room.raters.counts(come(room, token).test.id)["timeouts"] == 1


@pytest.mark.parametrize(("late_s", "restarted", "claimed_s", "counts"), [
    (5, False, 90, True),  # within the grace
    (60, False, 90, False),  # the page itself says so
    (60, False, 20, True),  # the line was broken for a while
    (600, False, 20, False),  # nobody's line is broken for so long
    (600, True, 20, True),  # but the studio was away
    (600, True, 90, False),
])  # fmt: skip
def test_answer_after_its_time_counts_only_where_the_rater_could_not_help_it(
    tmp_path: Path, late_s: float, restarted: bool, claimed_s: float, counts: bool
) -> None:
    room = Room(tmp_path)
    token = opened(room, headphones="off", timeout_s=30)
    slots = room.sessions.view(come(room, token))["trial"]["slots"]
    for address in slots:
        room.sessions.take(come(room, token), address)
    room.now_s += 30 + late_s
    if restarted:
        room = Room(tmp_path, room.now_s)
    room.sessions.answer(come(room, token), 1, Reply((1.0,), seconds=claimed_s))
    assert len(room.raters.answers(come(room, token).test.id)) == counts


def test_clock_that_was_set_back_gives_no_negative_time(tmp_path: Path) -> None:
    room = Room(tmp_path)
    token = opened(room, headphones="off", timeout_s=30)
    room.sessions.view(come(room, token))
    room.now_s -= 500
    assert room.sessions.view(come(room, token))["trial"]["spent_s"] == 0


def test_clip_that_went_while_it_was_asked_for_is_not_found(room: Room) -> None:
    token = opened(room, headphones="off", arena=True)
    session = come(room, token)
    clip = room.store.clips(session.test.id, "ready")["s01", "c1"]
    room.store.drop_item(session.test.id, "s01")
    with pytest.raises(NotFound):
        room.store.samples(session.test.id, clip)


def test_export_of_an_open_arena_is_whole_although_clips_go_meanwhile(room: Room) -> None:
    test = come(room, opened(room, headphones="off", arena=True)).test
    sent = b""
    for piece in export(room.store, room.raters, test):
        sent += piece
        if b"ready/" in piece:
            room.store.drop_item(test.id, "s01")
    with zipfile.ZipFile(io.BytesIO(sent)) as archive:
        assert archive.testzip() is None
        assert sum(name.startswith("ready/") for name in archive.namelist()) == 1
