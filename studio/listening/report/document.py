"""What a report says, in what order, as paragraphs, tables and pictures. Knows no HTML and no PDF."""

from __future__ import annotations

from collections.abc import Iterator

from studio.listening import coverage
from studio.listening.answers import PAIRED, Kind
from studio.listening.companion import Companion, correlations
from studio.listening.report.blocks import Block, Document, Paragraph, Picture, Section, Table
from studio.listening.report.pictures import picture_names
from studio.listening.report.wording import NOTHING, SHARES, Wording, chance, plain
from studio.listening.statistics.analysis import Analysis, Contrast, Result
from studio.listening.statistics.intervals import RESAMPLES
from studio.listening.statistics.screening import Rule

# Fewer raters than the fewest that intervals were tried on.
FEW_RATERS = min(coverage.RATERS)


def document(analysis: Analysis, language: str, companion: Companion | None = None) -> Document:
    """Put the report together; sections with nothing to say are left out."""
    words = Wording(analysis.study, language)
    parts = [
        ("overview", _overview(analysis, words)),
        ("conditions", _conditions(analysis, words)),
        ("comparisons", _comparisons(analysis, words)),
        ("ranking", _ranking(analysis, words)),
        ("mixed", _mixed(analysis, words)),
        ("screening", _screening(analysis, words)),
        ("companion", _companion(companion, words)),
        ("method", _method(analysis, words)),
    ]
    sections = []
    for key, blocks in parts:
        found = tuple(blocks)
        if found:
            sections.append(Section(words.say(f"section.{key}"), found))
    return Document(language, analysis.study.title, tuple(sections))


def results(analysis: Analysis, words: Wording) -> list[tuple[str, Result]]:
    """The results that a report shows: with everyone and, where the rules leave somebody out, without them."""
    everyone = (words.say("everyone"), analysis.everyone)
    if not analysis.screening.exclusions:
        return [everyone]
    return [(words.say("screened"), analysis.screened), everyone]


def _overview(analysis: Analysis, words: Wording) -> Iterator[Block]:
    study, result = analysis.study, analysis.screened
    if study.simulated:
        yield Paragraph(words.say("simulated"), warning=True)
    yield Paragraph(words.say(f"asked.{study.kind.value}"))
    yield Paragraph(
        words.say(
            "counts", raters=analysis.everyone.raters, answers=analysis.everyone.answers, kept=result.raters
        )
    )
    if result.raters < FEW_RATERS:
        yield Paragraph(words.say("few", raters=result.raters, least=FEW_RATERS), warning=True)
    if study.material:
        head = (words.say("column.what"), words.say("column.how"))
        yield Table(words.say("table.material"), head, tuple(study.material.items()))


def _conditions(analysis: Analysis, words: Wording) -> Iterator[Block]:
    if not analysis.everyone.cells:
        yield Paragraph(words.say("no_answers"))
        return
    centred = any(cell.centred for cell in analysis.everyone.cells)
    medians = any(cell.median is not None for cell in analysis.everyone.cells)
    names = picture_names(analysis)
    yield from (Picture(name, words.say(f"shows.{name}")) for name in ("values", "answers") if name in names)
    keys = ["condition", "raters", "answers", f"value.{_unit(analysis.study.kind)}", "interval"]
    keys += ["median"] * medians + ["centred"] * centred
    for label, result in results(analysis, words):
        rows = []
        for cell in result.cells:
            row = [
                words.cell(cell.condition, cell.against), str(cell.value.raters), str(cell.answers),
                words.number(cell.value.value), words.bounds(cell.value),
            ]  # fmt: skip
            row += [words.number(cell.median)] * medians + [words.bounds(cell.centred)] * centred
            rows.append(tuple(row))
        yield Table(words.say("table.conditions", who=label), _head(keys, words), tuple(rows))
    if centred:
        yield Paragraph(words.say("about.centred"))


def _unit(kind: Kind) -> str:
    """Which word a kind's value goes by."""
    return kind.value if kind in SHARES else "mean"


def _head(keys: list[str], words: Wording) -> tuple[str, ...]:
    return tuple(words.say(f"column.{key}") for key in keys)


def _comparisons(analysis: Analysis, words: Wording) -> Iterator[Block]:
    if not analysis.everyone.contrasts:
        return
    names = picture_names(analysis)
    yield from (
        Picture(name, words.say(f"shows.{name}")) for name in ("differences", "power") if name in names
    )
    keys = ["comparison", "difference", "interval", "p", "holm", "effect", "rank_effect", "more"]
    for label, result in results(analysis, words):
        rows = tuple(_contrast(row, words) for row in result.contrasts)
        yield Table(words.say("table.comparisons", who=label), _head(keys, words), rows)
    paired = analysis.study.kind in PAIRED
    yield Paragraph(words.say(f"about.difference.{analysis.study.kind.value if paired else 'conditions'}"))
    yield Paragraph(words.say("about.abx" if analysis.study.kind is Kind.ABX else "about.wilcoxon"))
    yield Paragraph(words.say("about.power", difference=words.number(analysis.difference)))


def _contrast(row: Contrast, words: Wording) -> tuple[str, ...]:
    more = NOTHING if row.more is None else words.say("enough") if row.more == 0 else f"≈ {row.more}"
    return (
        words.cell(row.first, row.second), words.number(row.difference.value, signed=True),
        words.bounds(row.difference, signed=True), chance(row.p), chance(row.corrected_p), plain(row.effect),
        plain(row.rank_effect), more,
    )  # fmt: skip


def _ranking(analysis: Analysis, words: Wording) -> Iterator[Block]:
    if analysis.screened.ranking is None:
        return
    if not analysis.screened.ranking.rows:
        yield Paragraph(words.say("not_tied_together"), warning=True)
        return
    yield Picture("ranking", words.say("shows.ranking"))
    for label, result in results(analysis, words):
        if result.ranking and result.ranking.rows:
            rows = tuple(
                (words.name(row.condition), plain(row.strength), words.span(plain(row.low), plain(row.high)))
                for row in result.ranking.rows
            )
            head = _head(["condition", "strength", "interval"], words)
            yield Table(words.say("table.ranking", who=label), head, rows)
    yield Paragraph(words.say("about.ranking"))
    if analysis.screened.ranking.separated:
        yield Paragraph(words.say("separated"), warning=True)


def _mixed(analysis: Analysis, words: Wording) -> Iterator[Block]:
    for label, result in results(analysis, words):
        if result.mixed is not None:
            rows = tuple(
                (words.cell(condition, against), words.number(found.value), words.bounds(found))
                for condition, against, found in result.mixed.rows
            )
            head = _head(["condition", "value.mean", "interval"], words)
            yield Table(words.say("table.mixed", who=label), head, rows)
            spread = {
                name: plain(getattr(result.mixed, name)) for name in ("rater_sd", "item_sd", "residual_sd")
            }
            yield Paragraph(words.say("about.mixed", **spread))


def _screening(analysis: Analysis, words: Wording) -> Iterator[Block]:
    rules, applied = analysis.rules, analysis.screening.applied
    repeat = rules.repeat_turned if analysis.study.kind is Kind.AB else rules.repeat_distance
    limits = {Rule.REFERENCE: rules.reference_share, Rule.TRAPS: rules.trap_share, Rule.INCONSISTENT: repeat}
    rows = []
    for rule, limit in limits.items():
        out = sum(found.rule is rule for found in analysis.screening.exclusions)
        state = (
            words.say("rule.off")
            if limit is None
            else str(out)
            if rule in applied
            else words.say("rule.nothing")
        )
        said = words.say(f"rule.{rule.value}", limit=f"{limit or 0:.0%}", below=f"{rules.reference_below:g}")
        rows.append((said, state))
    yield Table(words.say("table.rules"), _head(["rule", "left_out"], words), tuple(rows))
    out_rows = tuple(
        (found.rater, words.say(f"broke.{found.rule.value}"), f"{found.found:.0%}", f"{found.limit:.0%}")
        for found in analysis.screening.exclusions
    )
    if out_rows:
        head = _head(["rater", "why", "found", "limit"], words)
        yield Table(words.say("table.left_out"), head, out_rows)


def _companion(companion: Companion | None, words: Wording) -> Iterator[Block]:
    if companion is None:
        return
    measures = [m for m in companion.measures if companion.has(m)]
    rows = []
    for condition in words.study.conditions:
        values = [companion.mean(condition, m) for m in measures]
        if any(value is not None for value in values):
            rows.append((words.name(condition), *(plain(value) for value in values)))
    head = (words.say("column.condition"), *(words.say(f"measure.{m}") for m in measures))
    if rows:
        yield Table(words.say("table.measures"), head, tuple(rows))
    found = [row for row in correlations(companion) if row.clips > 2]
    if found:
        told = tuple(
            (words.say(f"measure.{row.measure}"), str(row.clips), plain(row.rho), plain(row.r), chance(row.p))
            for row in found
        )
        head = _head(["measure", "clips", "rho", "r", "p"], words)
        yield Table(words.say("table.correlations"), head, told)
        yield Paragraph(words.say("about.correlations"))
    for measure, reason in companion.absent.items():
        yield Paragraph(words.say("absent", measure=words.say(f"measure.{measure}"), reason=reason))


def _method(analysis: Analysis, words: Wording) -> Iterator[Block]:
    yield Paragraph(words.say("about.interval", resamples=RESAMPLES))
    kind, raters = analysis.study.kind, analysis.screened.raters
    sorts = ["value", "difference"] if kind not in PAIRED else ["value"]
    for sort in [*sorts, *(["strength"] if analysis.screened.ranking else [])]:
        row = coverage.nearest(kind, sort, raters)
        if row is not None:
            short = row.held < coverage.LEAST
            said = words.say(
                "covered",
                what=words.say(f"sort.{sort}"),
                studies=row.studies,
                raters=row.raters,
                held=f"{row.held:.1%}",
            )
            yield Paragraph(said + (" " + words.say("covered_short") if short else ""), warning=short)
    yield Paragraph(words.say("about.software"))
