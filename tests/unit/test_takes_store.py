"""Takes survive a restart, belong to one client each, are found by words, and make room for newer ones."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from studio.errors import ClientError, NotFound
from studio.speech import SpokenRow
from studio.takes.store import SCHEMA, Take, TakeStore

NOISE = (0.2 * np.random.default_rng(1).standard_normal(24_000)).clip(-1, 1).astype(np.float32)
"""A second that FLAC cannot make small: some 45 KB."""
SPOKEN = [SpokenRow([1, 2]), SpokenRow([3], 0.15, 2.0)]
Keep = Callable[..., Take]


@pytest.fixture
def store(tmp_path: Path) -> TakeStore:
    ticks = iter(range(1, 1000))
    return TakeStore(tmp_path, max_mb=0.2, now=lambda: float(next(ticks)))


@pytest.fixture
def keep(store: TakeStore) -> Keep:
    def keep_one(take_id: str, client: str = "ada", text: str = "hello", voice: str = "Clara", line: str = "") -> Take:
        request = {"text": text, "sampling": {"seed": 7}}
        about = {"voice": "v1", "voice_name": voice, "voice_key": "k", "model": "m"}
        return store.add(take_id, client, NOISE, SPOKEN, request, **about, line=line)

    return keep_one


def ids(takes: list[Take]) -> list[str]:
    return [take.id for take in takes]


def test_take_is_there_after_a_restart_sound_tokens_and_all(store: TakeStore, keep: Keep, tmp_path: Path) -> None:
    made = keep("a")
    store.close()
    again = TakeStore(tmp_path, max_mb=0.2)
    assert again.find("ada", "a") == made
    assert (made.seed, made.audio_s) == (7, 1.0)
    assert [SpokenRow(**row) for row in json.loads(made.spoken)] == SPOKEN
    assert np.abs(again.samples(made) - NOISE).max() < 1e-4


def test_tokens_of_a_take_from_before_pauses_were_kept_have_the_usual_ones(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "takes.sqlite")
    old.executescript(f"{(SCHEMA / '0001.sql').read_text()}; PRAGMA user_version = 1;")
    about = ("a", "ada", 1.0, "v1", "Clara", "k", "m", "{}", "hello", 7, "[[1,2],[3]]", 1.0, -20.0, -3.0, 9, 0, "")
    old.execute(f"INSERT INTO take VALUES ({', '.join('?' * len(about))})", about)
    old.commit()
    old.close()
    spoken = json.loads(TakeStore(tmp_path, max_mb=0.2).find("ada", "a").spoken)
    assert [SpokenRow(**row) for row in spoken] == [SpokenRow([1, 2]), SpokenRow([3], 0.15)]


def test_nobody_finds_stars_or_deletes_the_take_of_another(store: TakeStore, keep: Keep) -> None:
    keep("a")
    for attempt in (store.find, store.delete, lambda client, take: store.star(client, take, True)):
        with pytest.raises(NotFound):
            attempt("bob", "a")
    assert store.search("bob") == [] and not store.find("ada", "a").starred


def test_history_is_searched_by_words_of_text_and_voice(store: TakeStore, keep: Keep) -> None:
    keep("a", text="The old lighthouse")
    keep("b", text="100% sure", voice="Owen")
    keep("c", text="今天天气真好")
    assert ids(store.search("ada")) == ["c", "b", "a"]
    assert ids(store.search("ada", "LIGHT old")) == ["a"]
    assert ids(store.search("ada", "天气")) == ["c"]
    assert ids(store.search("ada", "owen")) == ["b"]
    assert ids(store.search("ada", "0%")) == ["b"] and store.search("ada", "1_0") == []
    store.star("ada", "a", True)
    assert ids(store.search("ada", starred=True)) == ["a"]


def test_oldest_take_goes_first_but_none_with_a_star_or_of_a_script(
    store: TakeStore, keep: Keep, tmp_path: Path
) -> None:
    keep("starred"), keep("line", line="l1"), keep("old"), keep("newer")
    store.star("ada", "starred", True)
    keep("newest")
    assert ids(store.search("ada")) == ["newest", "newer", "line", "starred"]
    assert {file.stem for file in (tmp_path / "sound").iterdir()} == {"newest", "newer", "line", "starred"}
    usage = store.usage("ada")
    assert usage.takes == 4 and usage.own_bytes == usage.all_bytes <= usage.limit_bytes == 200_000


def test_one_client_keeps_half_of_the_room_for_good_with_stars_and_scripts_together(
    store: TakeStore, keep: Keep, tmp_path: Path
) -> None:
    keep("line", line="l1"), keep("starred"), keep("one more")
    store.star("ada", "starred", True)
    for over in (lambda: store.star("ada", "one more", True), lambda: keep("line 2", line="l2")):
        with pytest.raises(ClientError, match="find room too"):
            over()
    assert ids(store.search("ada")) == ["one more", "starred", "line"] and not store.find("ada", "one more").starred
    assert len(list((tmp_path / "sound").iterdir())) == 3
    store.star("ada", "line", True)  # it is kept already
    store.star("ada", "starred", False)
    assert store.star("ada", "one more", True).starred


def test_all_clients_together_leave_a_quarter_of_the_room_for_new_takes(store: TakeStore, keep: Keep) -> None:
    for client in ("ada", "bob", "cleo"):
        keep(client, client)
        store.star(client, client, True)
    keep("new", "dora")
    with pytest.raises(ClientError, match="most for all together"):
        store.star("dora", "new", True)
    keep("newer", "emil")
    assert store.search("dora") == [] and ids(store.search("emil")) == ["newer"]
    assert [store.find(client, client).starred for client in ("ada", "bob", "cleo")] == [1, 1, 1]


def test_client_with_more_than_half_of_the_room_makes_room_with_its_own(store: TakeStore, keep: Keep) -> None:
    keep("bob's", "bob")
    for number in range(9):
        keep(str(number))
    assert ids(store.search("ada")) == ["8", "7", "6"] and ids(store.search("bob")) == ["bob's"]
    keep("bob's second", "bob")
    assert ids(store.search("ada")) == ["8", "7"]
    keep("cleo's", "cleo")  # nobody holds more than half any more: the oldest of all goes
    assert ids(store.search("bob")) == ["bob's second"] and ids(store.search("ada")) == ["8", "7"]


def test_take_that_does_not_fit_is_refused_and_nothing_is_forgotten(store: TakeStore, keep: Keep) -> None:
    keep("starred"), keep("loose", "bob")
    store.star("ada", "starred", True)
    sound = np.tile(NOISE, 4)
    with pytest.raises(ClientError, match="does not fit"):
        store.add("long", "cleo", sound, [], {"text": "x"}, voice="v", voice_name="C", voice_key="k", model="m")
    assert ids(store.search("bob")) == ["loose"]


def test_deleted_take_leaves_no_file(store: TakeStore, keep: Keep, tmp_path: Path) -> None:
    take = keep("a")
    store.delete("ada", "a")
    assert list((tmp_path / "sound").iterdir()) == [] and store.search("ada") == []
    with pytest.raises(NotFound):
        store.samples(take)


@pytest.mark.parametrize("broken", ["sound", "row"])
def test_full_disk_leaves_nothing_behind(
    store: TakeStore, keep: Keep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def cut_off(file: Path, *_: object, **__: object) -> None:
        file.write_bytes(b"fLaC")
        raise soundfile.LibsndfileError(2)

    if broken == "sound":
        monkeypatch.setattr(soundfile, "write", cut_off)
    else:
        store._db.execute("CREATE TRIGGER full BEFORE INSERT ON take BEGIN SELECT RAISE(ABORT, 'disk full'); END")
    with pytest.raises((soundfile.LibsndfileError, sqlite3.Error)):
        keep("a")
    assert list((tmp_path / "sound").iterdir()) == [] and store.search("ada") == []
