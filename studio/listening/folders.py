"""Uploaded folders, one for each condition, to the clips of all of them: matched by name, all or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from studio.errors import InvalidRequest
from studio.listening import problems
from studio.listening.design import Condition, Design, item_of
from studio.listening.intake import NamedFile, Sheaf, Upload, read_sheaves
from studio.listening.store import Clip

SHOWN_ITEMS = 8


def read_folders(design: Design, files: Iterable[NamedFile]) -> dict[str, list[Upload]]:
    """Clips by condition id. A file belongs to the condition of the folder that it lies in, wherever that lies.

    Raises: InvalidRequest that says what to change: for a folder without a condition and the other way round, for
            folders that do not hold the same sentences, for a file as `uploads` does, and for lengths far apart.
    """
    sheaves = {condition.id: Sheaf.of(held) for condition, held in _by_condition(design, files)}
    _check_names(design, sheaves)
    found = dict(zip(sheaves, read_sheaves(sheaves.values()), strict=True))
    _check_lengths(design, found)
    return found


def _by_condition(design: Design, files: Iterable[NamedFile]) -> list[tuple[Condition, list[NamedFile]]]:
    held: dict[str, list[NamedFile]] = {}
    for file in files:
        folder = PurePosixPath(file.name.replace("\\", "/")).parent.name
        if not folder:
            raise InvalidRequest("listening.folder_none", param="files", file=file.name)
        held.setdefault(folder, []).append(file)
    wanted: dict[str, Condition] = {}
    for condition in (c for c in design.conditions if c.source.kind == "upload"):
        folder = condition.source.folder or condition.name
        if (other := wanted.setdefault(folder, condition)) is not condition:
            raise InvalidRequest(
                "listening.folder_twice", param="conditions", folder=folder, name=other.name, other=condition.name
            )
    for folder in held.keys() - wanted.keys():
        known = ", ".join(wanted) or "-"
        raise InvalidRequest("listening.folder_unknown", param="files", folder=folder[:80], known=known)
    for folder, condition in wanted.items():
        if folder not in held:
            raise InvalidRequest("listening.folder_missing", param="files", folder=folder, name=condition.name)
    return [(condition, held[folder]) for folder, condition in wanted.items()]


def _check_names(design: Design, sheaves: Mapping[str, Sheaf]) -> None:
    """The same sentences everywhere, and those that the studio speaks if it speaks some."""
    spoken: set[str] = set()
    if any(condition.source.kind == "speech" for condition in design.conditions):
        spoken = {item_of(number) for number in range(len(design.texts))}
    wanted = spoken.union(*(sheaf.sounds for sheaf in sheaves.values()))
    names = {condition.id: condition.name for condition in design.conditions}
    for condition, sheaf in sheaves.items():
        lacking = sorted(wanted - sheaf.sounds.keys())
        if lacking:
            items = ", ".join(lacking[:SHOWN_ITEMS])
            raise InvalidRequest(
                "listening.lacking", param="files", name=names[condition], items=items, count=len(lacking)
            )
    if spoken and wanted != spoken:
        items = ", ".join(sorted(wanted - spoken)[:SHOWN_ITEMS])
        raise InvalidRequest("listening.not_spoken", param="files", items=items, count=len(spoken))


def _check_lengths(design: Design, found: Mapping[str, list[Upload]]) -> None:
    clips = {
        (one.item, condition): Clip(one.item, condition, "", one.samples, one.rate_hz, one.text)
        for condition, uploads in found.items()
        for one in uploads
    }
    problems.refuse(problems.of_lengths(design, clips, sorted({item for item, _ in clips})))
