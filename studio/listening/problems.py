"""What is wrong with a design or its material, said while it can still be changed. Changes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from studio.errors import InvalidRequest
from studio.listening.answers import Kind
from studio.listening.design import SIDE_BY_SIDE, WITH_GOLD, Condition, Design
from studio.listening.orders import plan, trials_of
from studio.listening.store import Clip
from studio.messages import MessageKey, render

MAX_CONDITIONS = 12
MAX_TEXTS = 200
MAX_TRIALS = 2000
NAME_MAX_CHARS, TEXT_MAX_CHARS = 60, 1000
FEW_RATERS = 8
ABX_TRIALS = 16
"""Fewer trials than this tell chance from hearing badly, one rater at a time."""
LENGTH_NOTED, LENGTH_REFUSED = 1.3, 3.0
LONG_SESSION_S = 45 * 60
ANSWER_S = 6.0
READ_OF_SOURCE = {"upload": {"folder"}, "speech": {"voice", "settings", "studio"}, "takes": {"takes"}}
"""What of a source is read, by its kind."""
UNREAD_IN_ARENA = ("texts", "training", "traps", "gold", "repeats")


@dataclass(frozen=True, slots=True)
class Problem:
    """One sentence of the catalogue about one field. level: an error must go before the test opens."""

    level: str
    key: str
    param: str
    values: dict[str, object] = field(default_factory=dict)

    def sentence(self, language: str) -> str:
        return render(self.key, language, **self.values)


def refuse(problems: Iterator[Problem] | list[Problem]) -> None:
    """Raises InvalidRequest for the first error among them."""
    for problem in problems:
        if problem.level == "error":
            raise InvalidRequest(problem.key, param=problem.param, retry_after_s=None, **problem.values)


def of_design(design: Design) -> Iterator[Problem]:
    """What can be said before there is a clip."""
    if not design.title.strip():
        yield _error("listening.title_missing", "title")
    yield from _of_conditions(design)
    yield from _of_texts(design)
    yield from _of_reference(design)
    if design.gold and design.kind not in WITH_GOLD:
        yield _error("listening.gold_kind", "gold")
    if design.kind is Kind.INTELLIGIBILITY and design.coverage != "latin":
        yield _error("listening.heard_twice", "coverage")
    if design.shape != "one" and design.coverage == "latin":
        yield _error("listening.latin_kind", "coverage")
    if design.min_results > design.raters:
        yield _error("listening.never_shown", "min_results", raters=design.raters, wanted=design.min_results)
    if design.arena:
        yield from _of_arena(design)
    if not design.arena:
        yield from _of_trials(design, len(design.texts))
    yield from _of_raters(design)


def _of_arena(design: Design) -> Iterator[Problem]:
    if design.min_results:
        yield _error("listening.arena_waits", "min_results")
    for name in UNREAD_IN_ARENA:
        if getattr(design, name):
            yield no_effect(name, name, "listening.because.arena")
    if any(condition.source.studio for condition in design.conditions):
        yield no_effect("studio", "conditions", "listening.because.arena_studio")


def _of_sources(condition: Condition) -> Iterator[Problem]:
    """Fields of a source that its kind does not read: whoever set them expects something of them."""
    source = condition.source
    for name in set().union(*READ_OF_SOURCE.values()) - READ_OF_SOURCE[source.kind]:
        if getattr(source, name):
            yield no_effect(name, "conditions", f"listening.because.{source.kind}")


def no_effect(name: str, param: str, reason: str) -> Problem:
    """A field that is set and never read."""
    return _error("listening.no_effect", param, field=name, reason=MessageKey(reason))


def _of_trials(design: Design, items: int) -> Iterator[Problem]:
    """Reckoned, since a plan so long would take a while to draw."""
    if (trials := trials_of(design, items)) > MAX_TRIALS:
        yield _error("listening.trials_many", "texts", trials=trials, most=MAX_TRIALS)


def _of_conditions(design: Design) -> Iterator[Problem]:
    least = 1 if design.shape == "one" else 2
    names = [c.name.strip() for c in design.conditions]
    if not least <= len(design.compared) <= MAX_CONDITIONS:
        yield _error("listening.conditions_count", "conditions", least=least, most=MAX_CONDITIONS)
    for name in names:
        if not name or len(name) > NAME_MAX_CHARS or not name.isprintable():
            yield _error("listening.name_bad", "conditions", limit=NAME_MAX_CHARS)
        elif names.count(name) > 1:
            yield _error("listening.name_twice", "conditions", name=name)
        for param, text in (("consent", design.consent), ("instructions", design.instructions)):
            if len(name) > 2 and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE):
                yield _error("listening.told", param, name=name)
    if design.arena and (
        design.kind is not Kind.AB or any(c.source.kind != "speech" for c in design.conditions)
    ):
        yield _error("listening.arena_speech", "conditions")
    for condition in design.conditions:
        yield from _of_sources(condition)
        if condition.source.kind == "speech" and not condition.source.voice:
            yield _error("listening.voice_missing", "conditions", name=condition.name)
        if condition.source.kind == "takes" and not condition.source.takes:
            yield _error("listening.takes_missing", "conditions", name=condition.name)


def _of_texts(design: Design) -> Iterator[Problem]:
    wanted = any(c.source.kind == "speech" for c in design.conditions) and not design.arena
    if wanted and not design.texts:
        yield _error("listening.texts_missing", "texts")
    if len(design.texts) > MAX_TEXTS or any(len(text) > TEXT_MAX_CHARS for text in design.texts):
        yield _error("listening.texts_long", "texts", texts=MAX_TEXTS, characters=TEXT_MAX_CHARS)


def _of_reference(design: Design) -> Iterator[Problem]:
    needed = design.kind in (Kind.MUSHRA, Kind.SIMILARITY)
    known = {c.id for c in design.conditions}
    if design.reference == "voice" and design.kind is Kind.SIMILARITY:
        if any(c.source.kind != "speech" for c in design.conditions):
            yield _error("listening.reference_voice", "reference")
    elif needed and design.reference not in known:
        yield _error("listening.reference_missing", "reference")
    elif not needed and design.reference:
        yield _error("listening.reference_extra", "reference")


def _of_raters(design: Design) -> Iterator[Problem]:
    if design.raters < FEW_RATERS:
        yield Problem(
            "note", "listening.few_raters", "raters", {"raters": design.raters, "wanted": FEW_RATERS}
        )
    block = 2 if design.shape == "pair" else len(design.rated)
    if block > 1 and design.raters % block:
        wanted = (design.raters // block + 1) * block
        yield Problem("note", "listening.unbalanced", "raters", {"raters": design.raters, "wanted": wanted})


def of_material(design: Design, clips: Mapping[tuple[str, str], Clip]) -> Iterator[Problem]:
    """What the clips lack, sentence by sentence."""
    if design.arena:
        return
    items = sorted({item for item, _ in clips})
    if not items:
        yield _error("listening.no_material", "files")
        return
    for condition in design.conditions:
        lacking = [item for item in items if (item, condition.id) not in clips]
        if lacking:
            yield _error(
                "listening.lacking",
                "files",
                name=condition.name,
                items=", ".join(lacking[:8]),
                count=len(lacking),
            )
    if design.training >= len(items):
        yield _error("listening.all_training", "training", training=design.training, items=len(items))
        return
    if design.kind is Kind.INTELLIGIBILITY:
        silent = [
            item for item in items if not any(c.text.strip() for (i, _), c in clips.items() if i == item)
        ]
        if silent:
            yield _error("listening.no_text", "texts", items=", ".join(silent[:8]))
    yield from of_lengths(design, clips, items)
    yield from _of_session(design, clips, items)


def of_lengths(design: Design, clips: Mapping[tuple[str, str], Clip], items: list[str]) -> Iterator[Problem]:
    """Sentences that last much longer in one condition than in another; the reference of similarity may."""
    compared = set(design.compared)
    for item in items:
        lengths = [c.seconds for (i, condition), c in clips.items() if i == item and condition in compared]
        if not lengths or min(lengths) <= 0:
            continue
        ratio = max(lengths) / min(lengths)
        if ratio > LENGTH_NOTED:
            level = "error" if ratio > LENGTH_REFUSED else "note"
            values = {"item": item, "short": min(lengths), "long": max(lengths)}
            key = "listening.lengths_far" if level == "error" else "listening.lengths"
            yield Problem(level, key, "files", values)


def _of_session(design: Design, clips: Mapping[tuple[str, str], Clip], items: list[str]) -> Iterator[Problem]:
    if trials_of(design, len(items)) > MAX_TRIALS:
        yield from _of_trials(design, len(items))
        return
    trials = plan(design, items, 0)
    longest = {item: max(c.seconds for (i, _), c in clips.items() if i == item) for item in items}
    seconds = sum(longest[trial.item] * len(trial.slots) + ANSWER_S for trial in trials)
    if seconds > LONG_SESSION_S:
        yield Problem(
            "note", "listening.long_session", "texts", {"trials": len(trials), "minutes": seconds / 60}
        )
    if design.kind is Kind.ABX and len(trials) < ABX_TRIALS:
        yield Problem("note", "listening.few_abx", "rounds", {"trials": len(trials), "wanted": ABX_TRIALS})
    if design.kind in SIDE_BY_SIDE and max(longest.values()) > 12:
        yield Problem("note", "listening.long_clips", "files", {"seconds": max(longest.values())})


def _error(key: str, param: str, **values: object) -> Problem:
    return Problem("error", key, param, values)
