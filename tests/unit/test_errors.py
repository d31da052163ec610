"""The error tree: every leaf has its sentence, its status, and survives a process border."""

import json
import pickle
import re
from pathlib import Path

import pytest

from studio import errors
from studio.messages import LANGUAGES, catalogue, render


def leaves(kind: type[errors.StudioError]) -> list[type[errors.StudioError]]:
    below = kind.__subclasses__()
    return [leaf for child in below for leaf in leaves(child)] if below else [kind]


@pytest.mark.parametrize("leaf", leaves(errors.StudioError), ids=lambda leaf: leaf.__name__)
def test_leaf_is_in_the_drawn_tree_with_its_status(leaf: type[errors.StudioError]) -> None:
    drawn = re.search(rf"^ +{leaf.__name__} +(\d+)", errors.__doc__ or "", re.MULTILINE)
    assert drawn and int(drawn[1]) == leaf.http_status


def test_error_keeps_its_sentence_across_a_pipe() -> None:
    error = errors.QueueFull("queue.full", waiting=3, seconds=4.0, retry_after_s=4.0)
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, errors.QueueFull)
    assert copy.message("zh") == error.message("zh") and copy.retry_after_s == 4.0


def test_catalogues_have_the_same_keys_and_fields() -> None:
    fields = {
        name: {k: set(re.findall(r"{(\w+)", v)) for k, v in catalogue(name).items()} for name in LANGUAGES
    }
    assert fields["en"] == fields["zh"]


def test_every_key_in_the_code_is_in_the_catalogue() -> None:
    root = Path(errors.__file__).parent
    families = {k.split(".")[0] for k in catalogue("en") if "." in k}
    pattern = re.compile(rf'"((?:{"|".join(sorted(families))})\.[a-z_0-9]+)"')
    used = {
        (p.name, key) for p in root.rglob("*.py") for key in pattern.findall(p.read_text(encoding="utf-8"))
    }
    missing = sorted(
        (file, key)
        for file, key in used
        if key not in catalogue("en") and not key.endswith((".json", ".sql", ".sqlite", ".css", ".wav"))
    )
    assert not missing


def test_unknown_language_falls_back_to_english() -> None:
    assert (
        render("text.empty", "fr")
        == json.loads((Path("assets/messages/en.json")).read_text(encoding="utf-8"))["text.empty"]
    )
