"""Voices are edited, deleted and brought back; libraries of older studios are brought up to date."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from studio.errors import ClientError, InvalidRequest, VoiceConflict, VoiceNotFound
from studio.library import store as library
from studio.library.store import BIN_LIFE_S, VoiceStore
from studio.library.voice import check_defaults, check_tags

CLIP = np.sin(np.arange(24000, dtype=np.float32) / 20).astype(np.float32) * 0.5
SCHEMA = Path(library.__file__).with_name("schema")


@pytest.fixture
def store(tmp_path: Path) -> VoiceStore:
    return VoiceStore(tmp_path, max_voices=3)


def test_what_is_written_about_a_voice_survives_a_restart(store: VoiceStore, tmp_path: Path) -> None:
    store.add(CLIP, 24000, "hello", name="Ada")
    written = {
        "name": "Ada L.", "tags": ["warm", "low "], "notes": "for the\nbook", "language": "en", "audition": "Good day.",
        "defaults": {"speed": 0.9, "seed": 7},
    }  # fmt: skip
    edited = store.edit("ada", **written)
    store.close()
    again = VoiceStore(tmp_path)
    assert again.find("Ada L.") == edited and edited.tags == ("warm", "low")
    assert edited.defaults == {"speed": 0.9, "seed": 7} and edited.notes == "for the\nbook"
    with pytest.raises(VoiceNotFound):
        again.find("Ada")


def test_two_stores_of_one_folder_edit_different_fields_and_both_stay(
    store: VoiceStore, tmp_path: Path
) -> None:
    made, other = store.add(CLIP, 24000, "hello", name="Ada"), VoiceStore(tmp_path)
    store.edit(made.id, notes="mine")
    other.edit(made.id, tags=["theirs"])
    assert store.find(made.id) == other.find(made.id)
    assert (store.find(made.id).notes, store.find(made.id).tags) == ("mine", ("theirs",))


def test_rename_to_a_name_in_use_changes_nothing(store: VoiceStore) -> None:
    store.add(CLIP, 24000, "hello", name="Ada")
    bob = store.add(CLIP, 24000, "hello", name="Bob")
    with pytest.raises(VoiceConflict):
        store.edit("Bob", name="ADA", notes="x")
    assert store.find("Bob") == bob


def test_starter_keeps_its_name_but_takes_tags(store: VoiceStore) -> None:
    store.add(CLIP, 24000, "hello", name="Iris", origin="starter")
    with pytest.raises(ClientError):
        store.edit("Iris", name="Mine")
    assert store.edit("Iris", tags=["calm"]).tags == ("calm",)


def test_draft_is_named_with_consent_only(store: VoiceStore) -> None:
    draft = store.add(CLIP, 24000, "hello")
    with pytest.raises(ClientError):
        store.edit(draft.id, name="Ada")
    assert store.edit(draft.id, notes="x").name is None


def test_deleted_voice_comes_back_as_it_was(store: VoiceStore) -> None:
    ada = store.add(CLIP, 24000, "hello", name="Ada", tags=["warm"])
    gone = store.discard("Ada")
    assert gone.deleted_s is not None and store.all() == [] and store.discarded() == [gone]
    with pytest.raises(VoiceNotFound):
        store.find(ada.id)
    assert store.restore(ada.id) == ada and store.all() == [ada] and store.discarded() == []
    with pytest.raises(VoiceNotFound):
        store.restore(ada.id)


def test_name_of_a_deleted_voice_is_free_and_it_comes_back_with_a_number(store: VoiceStore) -> None:
    gone = store.discard(store.add(CLIP, 24000, "hello", name="Ada").id)
    new = store.add(CLIP, 24000, "hello", name="Ada")
    assert store.restore(gone.id).name == "Ada 2" and store.find("Ada") == new


def test_deleted_voice_does_not_fill_the_library_and_comes_back_only_if_there_is_room(
    store: VoiceStore,
) -> None:
    for name in "abc":
        store.add(CLIP, 24000, "hello", name=name)
    gone = store.discard("a")
    store.add(CLIP, 24000, "hello", name="d")
    with pytest.raises(InvalidRequest, match="3 voices"):
        store.restore(gone.id)
    assert store.discarded() == [gone]


def test_deleted_voice_goes_for_good_after_a_day_or_at_once(tmp_path: Path) -> None:
    now = [1000.0]
    store = VoiceStore(tmp_path, now=lambda: now[0])
    for name, level in (("Ada", 0.9), ("Bob", 0.5)):
        store.discard(store.add(CLIP * level, 24000, "hello", name=name).id)
    bob, ada = sorted(store.discarded(), key=lambda v: v.name or "", reverse=True)
    store.delete(bob.id)
    assert not store.clip_file(bob).exists() and store.clip_file(ada).exists()
    now[0] += BIN_LIFE_S + 1
    assert store.forget_drafts() == [ada] and not store.clip_file(ada).exists()


def test_library_of_the_first_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "voices.sqlite") as db:
        db.executescript((SCHEMA / "0001.sql").read_text() + "; PRAGMA user_version = 1;")
        values = ("id1", "Ada", "user", "hello", "en", "agreed", "", "c" * 32, 2.0, 5.0)
        db.execute(f"INSERT INTO voice VALUES ({', '.join('?' * 10)})", values)
    db.close()
    ada = VoiceStore(tmp_path).find("Ada")
    assert (ada.id, ada.consent, ada.clip_s, ada.tags, ada.defaults) == ("id1", "agreed", 2.0, (), {})


def test_schema_step_that_fails_changes_nothing(tmp_path: Path) -> None:
    from studio.database import open_database

    schema, file = tmp_path / "schema", tmp_path / "x.sqlite"
    schema.mkdir()
    (schema / "0001.sql").write_text("CREATE TABLE a (x); CREATE TABLE a (x);")
    with pytest.raises(sqlite3.OperationalError):
        open_database(file, schema)
    (schema / "0001.sql").write_text("CREATE TABLE a (x);")
    database = open_database(file, schema)
    assert database.execute("PRAGMA user_version").fetchone() == (1,)


@pytest.mark.parametrize("tags", ["warm", [1], ["a" * 25], ["a,b"], [str(n) for n in range(13)], ["a\nb\0"]])
def test_unusable_tags_are_refused(tags: object) -> None:
    with pytest.raises(InvalidRequest):
        check_tags(tags)


def test_tags_are_kept_once() -> None:
    assert check_tags(["Warm ", "", "low", "warm"]) == ("Warm", "low")


@pytest.mark.parametrize(
    "defaults",
    [
        [],
        {"voice": "x"},
        {"speed": 3},
        {"speed": True},
        {"seed": 1.5},
        {"speed": float("nan")},
        {"instructions": 5},
        {"instructions": "x" * 401},
    ],
)
def test_unusable_defaults_are_refused(defaults: object) -> None:
    with pytest.raises(InvalidRequest):
        check_defaults(defaults)


def test_search_looks_in_all_that_is_written(store: VoiceStore) -> None:
    ada = store.add(
        CLIP, 24000, "the harbour", name="Ada", tags=["Warm"], notes="for the book", language="en"
    )
    for query in ("", "ada", "WARM book", "harb", "en"):
        assert ada.matches(query)
    assert not ada.matches("ada cold")
