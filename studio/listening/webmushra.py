"""webMUSHRA's files: its YAML with the sounds it names becomes a design, our answers become its CSV.

Taken: pages of type mushra, paired_comparison and likert_single_stimulus, alone or below a list that begins with
"random". Others are named in the error or left out: generic, consent, volume and finish pages hold no question.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from studio.errors import InvalidRequest
from studio.listening.answers import Answer, Kind, Role
from studio.listening.design import Condition, Design
from studio.listening.intake import NamedFile

KINDS = {"mushra": Kind.MUSHRA, "paired_comparison": Kind.AB, "likert_single_stimulus": Kind.MOS}
WITHOUT_QUESTION = {"generic", "consent", "volume", "finish"}
MAX_NODES, MAX_YAML_BYTES = 2000, 1_000_000
YAML_SUFFIXES = (".yaml", ".yml")
HEADS = {
    "mushra": ("trial_id", "rating_stimulus", "rating_score", "rating_time", "rating_comment"),
    "paired_comparison": (
        "trial_id", "choice_reference", "choice_non_reference", "choice_answer", "choice_time", "choice_comment",
    ),
    "lss": ("trial_id", "stimuli_rating", "stimuli", "rating_time"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Imported:
    """A design, and which file is the clip of which item and condition."""

    design: Design
    files: dict[tuple[str, str], NamedFile]


def read(files: Iterable[NamedFile]) -> Imported:
    """The one YAML among the files, with the sounds it names. Raises InvalidRequest that says what does not fit."""
    files = list(files)
    configs = [file for file in files if file.name.lower().endswith(YAML_SUFFIXES)]
    if len(configs) != 1:
        raise InvalidRequest("listening.yaml_count", param="files", count=len(configs))
    try:
        config = yaml.load(configs[0].content[:MAX_YAML_BYTES].decode("utf-8-sig"), _Loader)
        pages = list(_pages(config["pages"]))
        title = _word(config.get("testname") or config.get("testId") or "webMUSHRA")
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InvalidRequest("listening.yaml_broken", param="files", file=configs[0].name) from None
    asked = [page for page in pages if page.get("type") not in WITHOUT_QUESTION]
    types = {str(page.get("type")) for page in asked}
    if len(types) != 1 or not types <= KINDS.keys():
        raise InvalidRequest("listening.yaml_kind", param="files", found=", ".join(sorted(types)) or "-")
    kind = KINDS[types.pop()]
    names, clips = _clips(asked, kind, {file.name: file for file in files})
    conditions = tuple(Condition(f"c{n}", name) for n, name in enumerate(names, 1))
    is_mushra = kind is Kind.MUSHRA
    anchors = is_mushra and any(page.get("createAnchor35") or page.get("createAnchor70") for page in asked)
    reference = "c1" if is_mushra else ""
    return Imported(Design(kind, title[:200], conditions, reference=reference, anchors=anchors), clips)


class _Loader(yaml.SafeLoader):
    """Plain values only, and none twice: a few lines that refer to each other can stand for endless text."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not taken")
        return super().compose_node(parent, index)


def _word(value: Any) -> str:
    """A name, a path or a title as text. Raises ValueError for anything but text and whole numbers."""
    if not isinstance(value, str | int):
        raise ValueError("neither text nor a whole number")
    return str(value)


def _pages(listed: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Pages in their order; a nested list that begins with "random" is a group.

    Raises: ValueError for more than MAX_NODES, or for a page whose type, id, names or paths are no words.
    """
    waiting, seen = list(reversed(list(listed))), 0
    while waiting:
        seen += 1
        if seen > MAX_NODES:
            raise ValueError("too many pages")
        page = waiting.pop()
        if isinstance(page, list):
            waiting.extend(reversed(page[:MAX_NODES]))
        elif isinstance(page, dict):
            stimuli = page.get("stimuli") or {}
            if not isinstance(stimuli, dict):
                raise ValueError("stimuli are no names with files")
            words = {key: _word(page[key]) for key in ("type", "id", "reference") if page.get(key) is not None}
            yield page | words | {"stimuli": {_word(name): _word(path) for name, path in stimuli.items()}}


def _clips(
    pages: Iterable[Mapping[str, Any]], kind: Kind, files: Mapping[str, NamedFile]
) -> tuple[list[str], dict[tuple[str, str], NamedFile]]:
    """Names of the conditions, the reference first, and their files by page."""
    names: list[str] = []
    found: dict[tuple[str, str], NamedFile] = {}
    for number, page in enumerate(pages, 1):
        stimuli = page["stimuli"]
        if kind is not Kind.MOS and page.get("reference"):
            stimuli = {"reference": page["reference"]} | stimuli
        for name, path in stimuli.items():
            if name not in names:
                names.append(name)
            condition = f"c{names.index(name) + 1}"
            found[f"{number:02d} {page.get('id', '')}".strip(), condition] = _file(path, files)
    return names, found


def _file(path: str, files: Mapping[str, NamedFile]) -> NamedFile:
    """The file of that path; whoever packed the zip may have left out the outer folders."""
    for name in (path, *(path.split("/", n)[-1] for n in range(1, path.count("/") + 1))):
        if name in files:
            return files[name]
    raise InvalidRequest("listening.yaml_file", param="files", file=path)


def results(design: Design, rows: Iterable[Answer]) -> dict[str, str]:
    """CSV files in webMUSHRA's form, by its names for them; only what tells about conditions is in them."""
    name = {Kind.MUSHRA: "mushra", Kind.MUSHRA_NMR: "mushra"}.get(
        design.kind, "paired_comparison" if design.shape == "pair" else "lss"
    )
    titles = {c.id: "reference" if c.id == design.reference else c.name for c in design.conditions}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("session_test_id", "rater", *HEADS[name]))
    for row in rows:
        if row.role is Role.TEST:
            writer.writerow((row.test, row.rater, *_cells(name, row, titles)))
    return {f"{name}.csv": out.getvalue()}


def _cells(name: str, row: Answer, titles: Mapping[str, str]) -> tuple[object, ...]:
    condition, ms = _plain(titles.get(row.condition, row.condition)), round(1000 * (row.seconds or 0))
    if name == "mushra":
        return row.item, condition, row.score, ms, _plain(row.comment)
    if name == "paired_comparison":
        against = _plain(titles.get(row.against, row.against))
        return row.item, condition, against, row.score, ms, _plain(row.comment)
    return row.item, row.score, condition, ms


def _plain(text: str) -> str:
    """A cell that no spreadsheet runs as a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
