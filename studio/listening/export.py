"""Everything of a test in one zip: design, answers, raters' comments, clips. It is kept when a test is deleted."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from studio.archive import streamed_zip
from studio.audio.encode import encode_file
from studio.errors import NotFound
from studio.listening import webmushra
from studio.listening.answers import write_csv
from studio.listening.raters import RaterStore
from studio.listening.store import ListeningStore, Test

KEPT_MAX_BYTES = 2_000_000_000
"""Of exports of deleted tests together; the oldest go first, but never the one that was made last."""


def export(store: ListeningStore, raters: RaterStore, test: Test) -> Iterator[bytes]:
    """The zip, piece by piece; clips lie in a folder for each condition, named for their sentence."""
    return streamed_zip(_entries(store, raters, test))


def _entries(store: ListeningStore, raters: RaterStore, test: Test) -> Iterator[tuple[str, bytes]]:
    answers = raters.answers(test.id)
    titles = {condition.id: f"{condition.id} {condition.name}" for condition in test.design.conditions}
    texts = {
        "design.json": _json(test.design.to_dict()),
        "answers.csv": write_csv(answers),
        **{f"webmushra/{name}": text for name, text in webmushra.results(test.design, answers).items()},
        "raters.json": _json(_raters(raters, test)),
    }
    for name, text in texts.items():
        yield name, text.encode()
    for stage in ("given", "ready"):
        for number, ((item, condition), clip) in enumerate(store.clips(test.id, stage).items()):
            try:
                samples = store.samples(test.id, clip)
            except NotFound:
                continue  # it went meanwhile, as the arena's do with each vote
            title = _safe(titles.get(condition, condition))
            yield f"{stage}/{title}/{_safe(item)}.{number}.flac", encode_file(samples, clip.rate_hz, "flac")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


def _raters(raters: RaterStore, test: Test) -> list[dict[str, object]]:
    return [
        {
            "id": rater.id,
            "name": rater.name,
            "headphones_right_of_6": rater.headphones,
            "finished": rater.finished_s is not None,
            "comment": rater.comment,
        }
        for rater in raters.of_test(test.id)
    ]


def _safe(name: str) -> str:
    """A name within the archive: whoever unpacks it must not be led outside."""
    return "".join(sign if sign.isalnum() or sign in " -_" else "_" for sign in name)[:60]


def keep(store: ListeningStore, test: Test, content: Iterable[bytes]) -> Path:
    """Write the export of a test that is about to go; whole or not at all. Old ones make room for it."""
    file = kept_file(store, test.id, test.owner)
    partial = file.with_suffix(".part")
    with partial.open("wb") as written:
        written.writelines(content)
    os.replace(partial, file)
    _make_room(file)
    return file


def _make_room(newest: Path) -> None:
    kept = sorted(newest.parent.glob("*.zip"), key=lambda file: (file == newest, file.stat().st_mtime))
    sizes = [file.stat().st_size for file in kept]
    for place, file in enumerate(kept[:-1]):
        if sum(sizes[place:]) <= KEPT_MAX_BYTES:
            break
        file.unlink()


def kept_file(store: ListeningStore, test: str, owner: str) -> Path:
    """Where the export of a deleted test lies; its name holds the owner's hash, so that only the owner finds it."""
    digest = hashlib.sha256(f"{owner}/{test}".encode()).hexdigest()
    return store.exports / f"{digest[:32]}.zip"
