"""The fixed texts, the prompts to clone, and which prompt reads which text. Speaks and scores nothing."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Language = Literal["en", "zh"]
Group = Literal["seen", "unseen_synthetic", "real"]

DATA = Path(__file__).parent / "data"
PROMPTS = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "prompts"

# Lines of the English hold-out that the published figures use; the other 400 are for trying things out.
TEST_LINES = 100
# Each real voice reads a spread of the test lines: two prompts x 20 is enough for a mean within 0.02.
REAL_LINES_STEP = 5

# Seconds = weights . (letters, words, pauses, 1), least relative squares over the 23,309 clips of the
# training corpus, of which 98 % lie between 0.81 and 1.33 times the fit.
_EN_WEIGHTS_S = (0.0579, 0.0201, 0.0610, 0.4549)
_ZH_WEIGHTS_S = (0.1797, 0.0, 0.0778, 0.3764)
_PAUSE = re.compile(r"[,;:，、；：—]|[.?!。？！](?=.)")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A clip to clone, with what is known about it."""

    id: str
    path: Path
    transcript: str
    language: Language
    group: Group
    speaker: str  # one speaker may have a prompt in each language


@dataclass(frozen=True, slots=True)
class Item:
    """One text read by one prompt: a row of the results."""

    id: str
    set: str
    language: Language
    text: str
    prompt: Prompt


def load_prompts(folder: Path = PROMPTS) -> list[Prompt]:
    """All prompts of `prompts.json`, in file order.

    Raises:  FileNotFoundError if the list or a clip is missing.
    """
    rows = json.loads((folder / "prompts.json").read_text(encoding="utf8"))["prompts"]
    prompts = [
        Prompt(r["id"], folder / r["file"], r["transcript"], r["language"], r["group"], r["speaker"])
        for r in rows
    ]
    for prompt in prompts:
        if not prompt.path.is_file():
            raise FileNotFoundError(prompt.path)
    return prompts


def load_texts(language: Language) -> list[str]:
    """The hold-out sentences of a language, in order; never part of any training data."""
    lines = (DATA / f"sentences_{language}.txt").read_text(encoding="utf8").splitlines()
    return [line for line in lines if line]


def expected_seconds(text: str, language: Language) -> float:
    """How long the training voices would take for the text, in seconds at normal tempo."""
    pauses = len(_PAUSE.findall(text))
    if language == "zh":
        counts = (len(re.findall("[\u4e00-\u9fff]", text)), 0, pauses, 1)
        return sum(w * n for w, n in zip(_ZH_WEIGHTS_S, counts, strict=True))
    counts = (len(re.findall("[A-Za-z]", text)), len(text.split()), pauses, 1)
    return sum(w * n for w, n in zip(_EN_WEIGHTS_S, counts, strict=True))


def _cycle(name: str, language: Language, texts: list[str], prompts: list[Prompt]) -> list[Item]:
    """The texts dealt to the prompts in turn, so every prompt reads about equally much."""
    if not prompts:
        return []
    return [
        Item(f"{name}_{k:03d}", name, language, text, prompts[k % len(prompts)])
        for k, text in enumerate(texts)
    ]


def plan(prompts: list[Prompt], limit: int | None = None) -> list[Item]:
    """Every item of the published evaluation.

    Args:    limit: at most so many items of each set, the first ones.
    Returns: English by seen, by unseen synthetic and by real prompts, then Mandarin.
    """
    english = load_texts("en")[:TEST_LINES]
    sets = []
    for name, group in (("en_seen", "seen"), ("en_unseen", "unseen_synthetic"), ("en_real", "real")):
        readers = [p for p in prompts if p.group == group and p.language == "en"]
        if group == "real":
            texts = [text for text in english[::REAL_LINES_STEP] for _ in readers]
        else:
            texts = english
        sets.append(_cycle(name, "en", texts, readers))
    sets.append(_cycle("zh", "zh", load_texts("zh"), [p for p in prompts if p.language == "zh"]))
    return [item for items in sets for item in items[:limit]]
