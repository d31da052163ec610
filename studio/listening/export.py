"""Everything of a test in one zip: design, answers, raters' comments, clips. It is kept when a test is deleted."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from pathlib import Path

from studio.audio.encode import encode_file
from studio.listening import webmushra
from studio.listening.answers import write_csv
from studio.listening.raters import RaterStore
from studio.listening.store import ListeningStore, Test


def export(store: ListeningStore, raters: RaterStore, test: Test) -> bytes:
    """The zip; clips lie in a folder for each condition, named for their sentence."""
    buffer = io.BytesIO()
    answers = raters.answers(test.id)
    titles = {condition.id: f"{condition.id} {condition.name}" for condition in test.design.conditions}
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("design.json", json.dumps(test.design.to_dict(), ensure_ascii=False, indent=1))
        archive.writestr("answers.csv", write_csv(answers))
        for name, text in webmushra.results(test.design, answers).items():
            archive.writestr(f"webmushra/{name}", text)
        archive.writestr("raters.json", json.dumps(_raters(raters, test), ensure_ascii=False, indent=1))
        for stage in ("given", "ready"):
            for number, ((item, condition), clip) in enumerate(store.clips(test.id, stage).items()):
                sound = encode_file(store.samples(test.id, clip), clip.rate_hz, "flac")
                title = _safe(titles.get(condition, condition))
                archive.writestr(f"{stage}/{title}/{_safe(item)}.{number}.flac", sound)
    return buffer.getvalue()


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


def keep(store: ListeningStore, test: Test, content: bytes) -> Path:
    """Write the export of a test that is about to go; whole or not at all."""
    file = kept_file(store, test.id, test.owner)
    partial = file.with_suffix(".part")
    partial.write_bytes(content)
    os.replace(partial, file)
    return file


def kept_file(store: ListeningStore, test: str, owner: str) -> Path:
    """Where the export of a deleted test lies; its name holds the owner's hash, so that only the owner finds it."""
    digest = hashlib.sha256(f"{owner}/{test}".encode()).hexdigest()
    return store.exports / f"{digest[:32]}.zip"
