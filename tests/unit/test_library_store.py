"""Voices survive a restart, names are labels and never paths, and nothing half written stays."""

from pathlib import Path

import numpy as np
import pytest

from studio.errors import ClientError, InvalidRequest, QueueFull, VoiceConflict, VoiceNotFound
from studio.library import store as library
from studio.library.store import DRAFT_LIFE_S, DRAFT_SAFE_S, VoiceStore
from studio.library.voice import check_transcript

CLIP = np.sin(np.arange(24000, dtype=np.float32) / 20).astype(np.float32) * 0.5


@pytest.fixture
def store(tmp_path: Path) -> VoiceStore:
    return VoiceStore(tmp_path, max_voices=3)


def test_named_voice_is_there_after_a_restart(store: VoiceStore, tmp_path: Path) -> None:
    made = store.add(CLIP, 24000, "hello", name="Ada")
    store.close()
    again = VoiceStore(tmp_path)
    assert again.find("ada") == made and again.find(made.id) == made
    samples, rate_hz = again.clip_samples(made)
    assert rate_hz == 24000 and np.abs(samples - CLIP).max() < 1e-4


def test_second_voice_of_a_name_is_refused_and_leaves_no_row(store: VoiceStore) -> None:
    store.add(CLIP, 24000, "hello", name="Ada")
    with pytest.raises(VoiceConflict):
        store.add(CLIP * 0.5, 24000, "other", name=" ada ")
    assert len(store.all()) == 1


@pytest.mark.parametrize("name", ["", "   ", "x" * 65, "a\x00b", "a\x1b[0m"])
def test_unusable_name_is_refused(store: VoiceStore, name: str) -> None:
    with pytest.raises(InvalidRequest):
        store.add(CLIP, 24000, "hello", name=name)


def test_name_never_becomes_a_path(store: VoiceStore, tmp_path: Path) -> None:
    voice = store.add(CLIP, 24000, "hello", name="../../etc/passwd")
    assert store.clip_file(voice).parent == tmp_path / "clips"
    assert store.find("../../etc/passwd").id == voice.id


def test_unknown_voice_is_told_with_the_known_ones(store: VoiceStore) -> None:
    store.add(CLIP, 24000, "hello", name="Ada")
    with pytest.raises(VoiceNotFound, match="Ada"):
        store.find("Bob")


def test_draft_is_hidden_until_named_and_forgotten_after_a_day(tmp_path: Path) -> None:
    now = [1000.0]
    store = VoiceStore(tmp_path, now=lambda: now[0])
    kept, lost = store.add(CLIP, 24000, "hello"), store.add(CLIP * 0.5, 24000, "bye")
    assert store.all() == []
    store.keep(kept.id, "Ada", consent="mine")
    now[0] += DRAFT_LIFE_S + 1
    assert store.forget_drafts() == [lost]
    assert [v.name for v in store.all()] == ["Ada"] and not store.clip_file(lost).exists()


def test_clip_shared_by_two_voices_stays_until_both_are_gone(store: VoiceStore) -> None:
    one, two = store.add(CLIP, 24000, "hello", name="A"), store.add(CLIP, 24000, "hello", name="B")
    store.delete("A")
    assert store.clip_file(two).exists()
    store.delete(two.id)
    assert not store.clip_file(one).exists()


def test_starter_cannot_be_deleted(store: VoiceStore) -> None:
    store.add(CLIP, 24000, "hello", name="Iris", origin="starter")
    with pytest.raises(ClientError):
        store.delete("Iris")


def test_full_library_says_so(store: VoiceStore) -> None:
    for name in "abc":
        store.add(CLIP, 24000, "hello", name=name)
    with pytest.raises(InvalidRequest, match="3 voices"):
        store.add(CLIP, 24000, "hello", name="d")


def test_library_of_a_newer_studio_is_not_touched(tmp_path: Path) -> None:
    import sqlite3

    store = VoiceStore(tmp_path)
    store.close()
    with sqlite3.connect(tmp_path / "voices.sqlite") as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(RuntimeError, match="update the studio"):
        VoiceStore(tmp_path)


def test_only_a_draft_can_be_named(store: VoiceStore) -> None:
    for origin in ("starter", "user"):
        named = store.add(CLIP, 24000, "hello", name=origin, origin=origin)
        with pytest.raises(VoiceConflict, match="only a draft"):
            store.keep(named.id, "Stolen")
        assert store.find(named.id) == named


def test_name_taken_between_the_look_and_the_change_is_told(
    store: VoiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(CLIP, 24000, "hello", name="Ada")
    draft = store.add(CLIP, 24000, "hello")
    monkeypatch.setattr(store, "_name_for", str)
    with pytest.raises(VoiceConflict, match="ada"):
        store.keep(draft.id, "ada")


def test_draft_too_many_is_refused_until_another_is_an_hour_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "MAX_DRAFTS", 2)
    now = [1000.0]
    store = VoiceStore(tmp_path, now=lambda: now[0])
    first, second = (store.add(CLIP * (0.1 + n / 10), 24000, "hello") for n in range(2))
    now[0] += DRAFT_SAFE_S - 60
    for attempt in (lambda: store.add(CLIP, 24000, "hello"), lambda: store.insert(first)):
        with pytest.raises(QueueFull, match="in 1 min") as refused:
            attempt()
        assert refused.value.http_status == 429 and refused.value.retry_after_s == 60
    assert store.forget_drafts() == [] and len(list((tmp_path / "clips").iterdir())) == 2
    kept = store.add(CLIP, 24000, "hello", name="Ada")  # a voice with a name is no draft
    now[0] += 61
    third = store.add(CLIP * 0.9, 24000, "hello")
    assert store.forget_drafts() == [first] and not store.clip_file(first).exists()
    assert store.all() == [kept] and all(store.find(draft.id) for draft in (second, third))


def test_deleted_voice_takes_the_drafts_of_its_clip_along(store: VoiceStore) -> None:
    draft, other = store.add(CLIP, 24000, "helo"), store.add(CLIP * 0.5, 24000, "other")
    voice = store.add(CLIP, 24000, "hello", name="Ada")
    store.delete("Ada")
    with pytest.raises(VoiceNotFound):
        store.find(draft.id)
    assert not store.clip_file(voice).exists() and store.find(other.id) == other


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", "transcript.missing"),
        ("?! …", "transcript.missing"),
        ("\ue000\ue001", "transcript.missing"),
        ("half \ud800", "text.not_unicode"),
        ("x" * 801, "transcript.too_long"),
        ("好" * 401, "transcript.too_long"),
        ("あ" * 401, "transcript.too_long"),
    ],
)
def test_transcript_that_cannot_be_used_is_refused(text: str, key: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_transcript(text)
    assert (caught.value.key, caught.value.param) == (key, "ref_text")


def test_transcript_may_fill_thirty_seconds_in_either_script() -> None:
    assert check_transcript(" " + "x" * 800) and check_transcript("好" * 400)


def test_voice_of_broken_characters_is_refused_as_such(store: VoiceStore) -> None:
    with pytest.raises(InvalidRequest):
        store.find("Ada\ud800")
