"""Which settings may be changed while the studio runs, and what of them does not go together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from studio.combinations import Place, misfit
from studio.errors import InvalidRequest, StudioError
from studio.messages import knob_effects
from studio.settings import Settings, extra, named_in, table

WORKER_OF_GROUP = {"lm": "lm", "token2wav": "token2wav"}
"""Groups whose settings a worker reads at its start."""
BOTH_ON_GPU = frozenset({"gpu_memory_utilization", "first_block_tokens"})
"""What both read on a GPU: token2wav takes what the LM's share leaves, and the LM tells tokens as it waits for them."""


def tunable() -> dict[str, Any]:
    """The rows of the settings table that may be changed, by name."""
    return {
        name: info
        for name, info in table().items()
        if extra(info, "group") in WORKER_OF_GROUP or acts(name) != "restart"
    }


def acts(name: str) -> str:
    """When a change acts: at once, at the next request or step, or after the restart of a worker."""
    return extra(table()[name], "applies")


def worker_of(name: str) -> str | None:
    """The worker that must be started again for a change; None for one that acts on the next request."""
    info = table()[name]
    return WORKER_OF_GROUP.get(extra(info, "group")) if acts(name) == "restart" else None


def workers_of(names: Collection[str], place: Place) -> tuple[str, ...]:
    """The workers that must be started again for such a change."""
    if place.device != "cpu" and BOTH_ON_GPU.intersection(names):
        return tuple(sorted(WORKER_OF_GROUP.values()))
    return tuple(sorted({worker for name in names if (worker := worker_of(name))}))


def rows(settings: Settings, language: str = "en") -> list[dict[str, object]]:
    """The table as clients see it: name, group, unit, range, default, present value, effect, when it acts."""
    effects = knob_effects() if language == "zh" else {}
    found: list[dict[str, object]] = []
    for name, info in tunable().items():
        bounds = {
            kind: getattr(rule, kind) for rule in info.metadata for kind in ("ge", "le", "multiple_of")
            if hasattr(rule, kind)
        }
        found.append({
            "name": name, "group": extra(info, "group"), "unit": extra(info, "unit"),
            "least": bounds.get("ge"), "most": bounds.get("le"), "step": bounds.get("multiple_of"),
            "choices": choices(name) or None,
            "default": info.default, "value": getattr(settings, name), "effect": effects.get(name, info.description),
            "kind": _kind(info.annotation), "acts": acts(name),
        })  # fmt: skip
    return found


def choices(name: str) -> tuple[str, ...]:
    """What a setting may be that is one of a few words; none for others."""
    annotation = table()[name].annotation
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _kind(annotation: Any) -> str:
    types = set(get_args(annotation)) or {annotation}
    return next((kind.__name__ for kind in (bool, int, float) if kind in types), "str")


@dataclass(frozen=True, slots=True)
class Imported:
    """What a file has for the settings that may be changed. refused: the others by name, each with what is wrong."""

    values: dict[str, object]
    refused: dict[str, StudioError]


def imported(text: str, settings: Settings) -> Imported:
    """A file as the export writes it, read as the studio reads it at a start; it changes nothing.

    Values are within their bounds; whether they go together, and with the settings of now, only `changed` tells.
    Raises: InvalidRequest for a text of another form.
    """
    try:
        given, unknown = named_in(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("admin.import_form", param="text", reason=error) from None
    found = Imported({}, {str(error.values["name"]): error for error in unknown})
    for name, value in given.items():
        try:
            found.values[name] = getattr(_within_bounds(settings, {name: value}), name)
        except InvalidRequest as error:
            found.refused[name] = error
    return found


def changed(settings: Settings, changes: Mapping[str, object], place: Place) -> Settings:
    """The settings with some changed, at a place.

    Raises: InvalidRequest naming the setting and the bound that it broke.
    """
    new = _within_bounds(settings, changes)
    if found := misfit(new.model_dump(), place):
        raise InvalidRequest(found.key, param=found.name, name=found.name, **found.values)
    return new


def _within_bounds(settings: Settings, changes: Mapping[str, object]) -> Settings:
    known = tunable()
    for name in changes:
        if name not in known:
            raise InvalidRequest("admin.not_tunable", param=name, name=name)
    try:
        return Settings.model_validate(settings.model_dump() | dict(changes))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise InvalidRequest("admin.bad_value", param=name, name=name, reason=first["msg"]) from None
