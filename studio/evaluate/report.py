"""Sums rows up against the acceptance figures: a table for people, JSON for machines. Measures nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean

from studio.evaluate.results import Row, unpack_similarities
from studio.evaluate.scoring import error_ratio, margin_over_wrong, quantile, relative_difference

Rows = list[Row]
Measure = Callable[[Rows], float | None]


@dataclass(frozen=True, slots=True)
class Criterion:
    """One line of the table: a measure over some sets, what it must reach and what we aim for."""

    key: str
    label: str
    sets: tuple[str, ...]
    measure: Measure
    must: float | None = None
    aim: float | None = None
    lower_is_better: bool = True
    percent: bool = False


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def word_error_ratio(rows: Rows) -> float:
    """All errors over all reference units, so long texts count more."""
    return error_ratio(sum(r.errors for r in rows), sum(r.length for r in rows))


def wrong_per_hundred(rows: Rows) -> float:
    return 100 * sum(r.wrong for r in rows) / len(rows)


def similarity(rows: Rows) -> float | None:
    return _mean(r.similarity for r in rows)


def told_apart_ratio(rows: Rows) -> float:
    """How often the output is most like its own prompt among the line-up."""
    return sum(r.best_match == r.speaker for r in rows) / len(rows)


def least_margin(rows: Rows) -> float | None:
    """The smallest of the speakers' margins of likeness over the best wrong prompt."""
    margins = []
    for speaker in sorted({r.speaker for r in rows}):
        heard = [
            (speaker, unpack_similarities(r.similarities))
            for r in rows
            if r.speaker == speaker and r.similarities
        ]
        if heard:
            margins.append(margin_over_wrong(heard))
    return min(margins) if margins else None


def pitch_error_ratio(rows: Rows) -> float | None:
    """Median over items of the difference between the median pitches of output and prompt."""
    errors = [
        relative_difference(r.pitch_hz, r.prompt_pitch_hz) for r in rows if r.pitch_hz and r.prompt_pitch_hz
    ]
    return quantile(errors, 0.5) if errors else None


def rtf(rows: Rows) -> float | None:
    """Seconds of waiting per second of sound, over all items together, seen by the client."""
    timed = [r for r in rows if r.wall_s is not None]
    return sum(r.wall_s for r in timed) / sum(r.audio_s for r in timed) if timed else None  # type: ignore[misc]


def ttfa_quantile(q: float) -> Measure:
    def measure(rows: Rows) -> float | None:
        times = [r.ttfa_s for r in rows if r.ttfa_s is not None]
        return quantile(times, q) if times else None

    return measure


def score(name: str) -> Measure:
    """Mean of one of the DNSMOS columns."""
    return lambda rows: _mean(getattr(r, name) for r in rows)


_ENGLISH = ("en_seen", "en_unseen", "en_real")
_ALL = (*_ENGLISH, "zh")
CRITERIA = (
    Criterion(
        "wer_seen", "WER, English, seen voices", ("en_seen",), word_error_ratio, 0.08, 0.04, percent=True
    ),
    Criterion(
        "wer_unseen",
        "WER, English, unseen prompts",
        ("en_unseen",),
        word_error_ratio,
        0.12,
        0.06,
        percent=True,
    ),
    Criterion(
        "wer_real", "WER, English, real people's prompts", ("en_real",), word_error_ratio, percent=True
    ),
    Criterion("pinyin_error", "Pinyin error, Mandarin", ("zh",), word_error_ratio, 0.15, 0.08, percent=True),
    Criterion("wrong_per_100", "Items gone wrong, of 100", _ALL, wrong_per_hundred, 3, 1),
    Criterion("similarity_seen", "Similarity, seen voices", ("en_seen",), similarity, 0.80, 0.86, False),
    Criterion(
        "similarity_unseen", "Similarity, unseen prompts", ("en_unseen",), similarity, 0.72, 0.80, False
    ),
    Criterion(
        "told_apart_unseen",
        "Right one of ten, unseen prompts",
        ("en_unseen",),
        told_apart_ratio,
        0.80,
        0.95,
        False,
        True,
    ),
    Criterion("similarity_real", "Similarity, real people", ("en_real",), similarity, 0.62, 0.70, False),
    Criterion(
        "margin_real",
        "Margin over the best wrong prompt, real people",
        ("en_real",),
        least_margin,
        0.08,
        0.12,
        False,
    ),
    Criterion("pitch_error", "Median F0 error", _ENGLISH, pitch_error_ratio, 0.15, 0.08, percent=True),
    Criterion("dnsmos_overall", "DNSMOS OVRL", _ALL, score("overall"), 2.9, 3.15, False),
    Criterion("dnsmos_signal", "DNSMOS SIG", _ALL, score("signal"), lower_is_better=False),
    Criterion("dnsmos_background", "DNSMOS BAK", _ALL, score("background"), lower_is_better=False),
    Criterion("dnsmos_p808", "DNSMOS P.808", _ALL, score("p808"), 3.4, 3.7, False),
    Criterion("rtf", "RTF, one stream", _ALL, rtf, 1.0, 0.6),
    Criterion("ttfa_p50_s", "TTFA p50, s", _ALL, ttfa_quantile(0.5)),
    Criterion("ttfa_p95_s", "TTFA p95, s", _ALL, ttfa_quantile(0.95)),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A criterion with its value, and whether it reaches what it must and what we aim for."""

    criterion: Criterion
    value: float
    items: int

    @property
    def verdict(self) -> str:
        c = self.criterion
        if c.must is None or c.aim is None:
            return ""
        reaches = (lambda bar: self.value <= bar) if c.lower_is_better else (lambda bar: self.value >= bar)
        return "aim" if reaches(c.aim) else "must" if reaches(c.must) else "missed"


def findings(rows: Rows) -> list[Finding]:
    """Every criterion that the rows say something about, in table order."""
    found = []
    for criterion in CRITERIA:
        chosen = [r for r in rows if r.set in criterion.sets]
        value = criterion.measure(chosen) if chosen else None
        if value is not None:
            found.append(Finding(criterion, value, len(chosen)))
    return found


def _figure(value: float | None, criterion: Criterion) -> str:
    if value is None:
        return ""
    return f"{100 * value:.1f} %" if criterion.percent else f"{value:.3g}"


def markdown(rows: Rows, conditions: dict[str, object]) -> str:
    """The summary page: conditions, the table, each set and prompt, and the worst items."""
    lines = ["# Evaluation", "", *(f"- {key}: {value}" for key, value in conditions.items()), ""]
    lines += ["| measure | value | must | aim | reached | items |", "| --- | --- | --- | --- | --- | --- |"]
    for f in findings(rows):
        c = f.criterion
        bound = "<=" if c.lower_is_better else ">="
        must, aim = (f"{bound} {_figure(bar, c)}" if bar is not None else "" for bar in (c.must, c.aim))
        lines.append(f"| {c.label} | **{_figure(f.value, c)}** | {must} | {aim} | {f.verdict} | {f.items} |")
    return "\n".join([*lines, "", *_by_prompt(rows), "", *_worst(rows), ""])


def _by_prompt(rows: Rows) -> list[str]:
    lines = [
        "## By prompt",
        "",
        "| set | prompt | items | errors | wrong | similarity | F0 error | OVRL |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for key in dict.fromkeys((r.set, r.prompt) for r in rows):
        own = [r for r in rows if (r.set, r.prompt) == key]
        pitch, alike, overall = pitch_error_ratio(own), similarity(own), score("overall")(own)
        cells = [
            f"{100 * word_error_ratio(own):.1f} %",
            str(sum(r.wrong for r in own)),
            "" if alike is None else f"{alike:.3f}",
            "" if pitch is None else f"{100 * pitch:.1f} %",
            "" if overall is None else f"{overall:.2f}",
        ]
        lines.append(f"| {key[0]} | {key[1]} | {len(own)} | {' | '.join(cells)} |")
    return lines


def _worst(rows: Rows, most: int = 12) -> list[str]:
    bad = sorted(
        (r for r in rows if r.errors), key=lambda r: (not r.wrong, -error_ratio(r.errors, r.length))
    )[:most]
    lines = [
        "## Worst items",
        "",
        "| item | prompt | text | heard | s / expected |",
        "| --- | --- | --- | --- | --- |",
    ]
    for r in bad:
        heard = (r.failure or r.transcript).replace("|", "/").replace("\n", " ")[:160]
        lines.append(f"| {r.id} | {r.prompt} | {r.text} | {heard} | {r.audio_s:.1f} / {r.expected_s:.1f} |")
    return lines


def json_line(rows: Rows, conditions: dict[str, object]) -> str:
    """All figures and their conditions as one line."""
    figures = {f.criterion.key: round(f.value, 4) for f in findings(rows)}
    verdicts = {f.criterion.key: f.verdict for f in findings(rows) if f.verdict}
    return json.dumps(
        {"conditions": conditions, "items": len(rows), **figures, "reached": verdicts}, ensure_ascii=False
    )
