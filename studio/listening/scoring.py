"""A rater's reply to one trial, as buttons and sliders gave it, to rows of the long format. Undoes the blinding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from studio.errors import InvalidRequest
from studio.listening.answers import SCALES, Answer, Kind, Role
from studio.listening.design import GOLD, Design
from studio.listening.orders import Trial
from studio.listening.words import word_errors

SLIDER_SLACK = 3.0
TYPED_MAX_CHARS = COMMENT_MAX_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Reply:
    """What came from the page. scores: one for each slot (MOS, similarity, MUSHRA), or one for a pair.

    A pair's score: CMOS -3..3, above zero when the second is better; AB 0 first, 1 second, 0.5 neither; ABX the slot
    that X was. typed: intelligibility.
    """

    scores: tuple[float, ...] = ()
    typed: str = ""
    comment: str = ""
    seconds: float = 0.0


def check_reply(design: Design, trial: Trial, reply: Reply) -> None:
    """Raises InvalidRequest listening.* for a reply that the trial cannot have."""
    if len(reply.comment) > COMMENT_MAX_CHARS or len(reply.typed) > TYPED_MAX_CHARS:
        raise InvalidRequest("listening.comment_long", param="comment", limit=COMMENT_MAX_CHARS)
    if design.kind is Kind.INTELLIGIBILITY:
        if not reply.typed.strip():
            raise InvalidRequest("listening.type_missing", param="typed")
        return
    if len(reply.scores) != (len(trial.slots) if design.shape != "pair" else 1):
        raise InvalidRequest("listening.answer_missing", param="scores")
    low, high = SCALES[design.kind]
    whole = design.kind is not Kind.AB
    for score in reply.scores:
        if not low <= score <= high or (whole and score != int(score)) or score * 2 != int(score * 2):
            raise InvalidRequest("listening.answer_bad", param="scores", low=low, high=high)


def answers(design: Design, trial: Trial, reply: Reply, said: str, head: Answer) -> list[Answer]:
    """The rows of one trial. head: a row with everything that does not depend on the reply.

    Args:    said: the text of the clip, for intelligibility.
    """
    check_reply(design, trial, reply)
    head = replace(head, typed=reply.typed, comment=reply.comment, seconds=round(reply.seconds, 2))
    if trial.role is Role.TRAP:
        return [_trap(design, trial, reply, head)]
    if design.shape == "pair":
        return [_pair(design, trial, reply.scores[0], head)]
    if design.kind is Kind.INTELLIGIBILITY:
        errors, words = word_errors(said, reply.typed)
        return [replace(head, condition=trial.slots[0], score=float(errors), words=words)]
    rows = [
        replace(head, condition=condition, score=float(score))
        for condition, score in zip(trial.slots, reply.scores, strict=True)
    ]
    return [_with_right(row, 1, 2) for row in rows] if trial.role is Role.GOLD else rows


def _pair(design: Design, trial: Trial, given: float, head: Answer) -> Answer:
    """From first and second button to the conditions in the design's order; of a gold trial the whole one first."""
    condition, against = _in_order(design, trial.slots)
    turned = trial.slots[0] != condition
    if design.kind is Kind.ABX:
        score = float(given == trial.x)
    elif design.kind is Kind.AB:
        score = given if turned else 1 - given
    else:
        score = given if turned else -given
    row = replace(head, condition=condition, against=against, score=score)
    return _with_right(row, 1, SCALES[design.kind].high) if trial.role is Role.GOLD else row


def _in_order(design: Design, slots: Sequence[str]) -> tuple[str, str]:
    known = [*design.rated, GOLD]
    first, second = sorted(slots, key=known.index)
    return first, second


def _trap(design: Design, trial: Trial, reply: Reply, head: Answer) -> Answer:
    """One row: where only a button or a number was told, 1 for obeyed and 0 for not; else the score itself."""
    assert trial.wanted is not None
    wanted = trial.wanted
    pair = _in_order(design, trial.slots) if len(trial.slots) == 2 else (trial.slots[0], "")
    row = replace(head, condition=pair[0], against=pair[1])
    if design.kind is Kind.INTELLIGIBILITY:
        obeyed = reply.typed.strip() == f"{wanted:.0f}"
        return _with_right(replace(row, score=float(not obeyed)), 0, 0)
    if design.kind in (Kind.AB, Kind.ABX):
        return _with_right(replace(row, score=float(reply.scores[0] == wanted)), 1, 1)
    if design.shape == "all":
        furthest = max(reply.scores, key=lambda score: abs(score - wanted))
        row = replace(row, score=float(furthest), against="")
        return _with_right(row, wanted - SLIDER_SLACK, wanted + SLIDER_SLACK)
    return _with_right(replace(row, score=float(reply.scores[0])), wanted, wanted)


def _with_right(row: Answer, low: float, high: float) -> Answer:
    return replace(row, wanted_low=low, wanted_high=high)
