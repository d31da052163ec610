"""What the owner of a listening test decides, as one frozen noun. Holds no sound; `problems.py` judges it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from studio.listening.answers import PAIRED, SCALES, Kind

REFERENCE = "reference"
ANCHORS = {"anchor35": 3500.0, "anchor70": 7000.0}
"""Condition ids of the low-pass anchors of ITU-R BS.1534, and their cut-off in Hz."""
GOLD = "gold"
"""Condition id of a clip that is spoilt on purpose, so that the right answer about it is known."""

SIDE_BY_SIDE = frozenset({Kind.MUSHRA, Kind.MUSHRA_NMR})
WITH_GOLD = frozenset({Kind.MOS, Kind.CMOS, Kind.AB, Kind.ABX})
"""In MUSHRA hidden reference and anchors do what gold items do; the other kinds have no answer known beforehand."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the clips of a condition come from.

    folder: of an upload of many folders, the one that holds them; "" for one of the condition's own name.
    speech: the studio makes them, in `voice`, from the design's texts. settings: of each request (temperature ...).
    studio: settings that the studio itself must run with meanwhile, such as {"dtype": "bfloat16"}.
    """

    kind: Literal["upload", "speech", "takes"] = "upload"
    folder: str = ""
    voice: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    studio: Mapping[str, Any] = field(default_factory=dict)
    takes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """What is compared. name: the owner's, never sent to a rater; id: c1 ..., for as long as it has that name."""

    id: str
    name: str
    source: Source = field(default_factory=Source)


@dataclass(frozen=True, slots=True)
class Design:
    """One listening test as its form has it.

    reference: id of the condition that serves as reference; "" if none is needed; "voice": similarity against the
    clip of each condition's own voice. anchors: add the two low-pass anchors (MUSHRA).
    training, traps, gold, repeats: how many such trials each rater gets; the first `training` sentences only train.
    rounds: how often each trial of ABX is asked. coverage: "full", every sentence in every condition; "latin", every
    sentence once, the condition by Latin square over raters. raters: how many are planned; min_results: finished
    raters before results are shown. timeout_s: 0, or how long a trial may take. seed: of orders and of speech.
    leaderboard: whether the arena's visitors see it, with the conditions' names: at any time between pairs, or once
    they voted; leaderboard_votes: from so many votes of all visitors on.
    """

    kind: Kind
    title: str
    conditions: tuple[Condition, ...]
    texts: tuple[str, ...] = ()
    reference: str = ""
    anchors: bool = True
    language: str = "en"
    consent: str = ""
    instructions: str = ""
    headphones: Literal["off", "ask", "require"] = "ask"
    training: int = 0
    traps: int = 0
    gold: int = 0
    repeats: int = 0
    rounds: int = 1
    coverage: Literal["full", "latin"] = "full"
    raters: int = 12
    min_results: int = 0
    timeout_s: int = 0
    comments: bool = True
    arena: bool = False
    leaderboard: Literal["voted", "always", "never"] = "voted"
    leaderboard_votes: int = 20
    seed: int = 0

    @property
    def scale(self) -> tuple[float, float]:
        return SCALES[self.kind]

    @property
    def shape(self) -> Literal["one", "pair", "all"]:
        """How many clips a trial asks about."""
        return "pair" if self.kind in PAIRED else "all" if self.kind in SIDE_BY_SIDE else "one"

    @property
    def compared(self) -> tuple[str, ...]:
        """Ids of the conditions that are compared; the reference of similarity is only heard."""
        known = (c.id for c in self.conditions)
        return tuple(c for c in known if not (self.kind is Kind.SIMILARITY and c == self.reference))

    @property
    def rated(self) -> tuple[str, ...]:
        """All that get scores: what is compared and, in MUSHRA, the anchors made here."""
        made = tuple(ANCHORS) if self.kind is Kind.MUSHRA and self.anchors else ()
        return (*self.compared, *made)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Design:
        """The inverse of `to_dict`. A test from before there were leaderboards shows none."""
        conditions = tuple(
            Condition(c["id"], c["name"], Source(**(c["source"] | {"takes": tuple(c["source"]["takes"])})))
            for c in given["conditions"]
        )
        plain = {"kind": Kind(given["kind"]), "conditions": conditions, "texts": tuple(given["texts"])}
        return cls(**({"leaderboard": "never"} | dict(given) | plain))


def item_of(number: int) -> str:
    """The id of a text's material: s01 for the first."""
    return f"s{number + 1:02d}"
