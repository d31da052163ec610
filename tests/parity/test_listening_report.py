"""Reports of listening tests: pages, PDFs and pictures say what the analysis found, in both languages."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from studio.evaluate import comparison
from studio.listening import coverage
from studio.listening.answers import Kind, Role
from studio.listening.companion import Clip, Companion, companion, correlations, to_json
from studio.listening.report import document, picture_names, render_html, render_pdf, render_picture
from studio.listening.report.blocks import Paragraph, Table
from studio.listening.statistics.analysis import Analysis, Options, analyse
from studio.listening.statistics.simulate import Simulated, simulate
from studio.messages import LANGUAGES, catalogue


def simulated(kind: Kind, raters: int = 9) -> Simulated:
    return simulate(kind, raters, np.random.default_rng(5))


def analysed(kind: Kind, raters: int = 9, people: bool = False, with_trap: bool = False) -> Analysis:
    drawn = simulated(kind, raters)
    answers = drawn.answers()
    if with_trap:
        answers += [replace(answers[0], role=Role.TRAP, wanted_low=-9, wanted_high=-9)]
    names = {"c1": 'flow <b>4</b> & "half"', "c2": "六步", "c3": "=ten"}
    study = replace(drawn.study(), title="Steps <script>", conditions=names, simulated=not people)
    return analyse(answers, study, Options(mixed=True))


def texts(analysis: Analysis, language: str, told: Companion | None = None) -> str:
    """All words of a report."""
    found = []
    for section in document(analysis, language, told).sections:
        found.append(section.title)
        for block in section.blocks:
            if isinstance(block, Paragraph):
                found.append(block.text)
            elif isinstance(block, Table):
                found += [block.caption, *block.head, *(cell for row in block.rows for cell in row)]
    return "\n".join(found)


class Outline(HTMLParser):
    """Tags, text and ids of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        told = dict(attrs)
        self.ids += [told["id"]] if told.get("id") else []
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href") and v]


def test_pictures_of_simulated_raters_are_marked() -> None:
    people = render_picture(analysed(Kind.MOS, people=True), "values")
    assert render_picture(analysed(Kind.MOS), "values") != people


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_has_a_page_with_pictures_and_tables(kind: Kind) -> None:
    found = analysed(kind)
    outline = Outline(render_html(found, "zh"))
    assert outline.tags.count("figure") == len(picture_names(found)) >= 3
    assert outline.tags.count("table") >= 3


def test_a_page_fetches_nothing_runs_nothing_and_repeats_no_id() -> None:
    page = render_html(analysed(Kind.AB), "en")
    outline = Outline(page)
    assert "script" not in outline.tags and "Steps &lt;script&gt;" in page
    assert "<b>4</b>" not in page
    assert all(link.startswith("#") for link in outline.links)
    assert len(outline.ids) == len(set(outline.ids))
    assert {link[1:] for link in outline.links} <= set(outline.ids)


def test_a_report_of_simulated_raters_says_so_first_and_one_of_people_does_not() -> None:
    said = catalogue("en")["report.simulated"]
    first = document(analysed(Kind.MOS), "en").sections[0].blocks[0]
    assert isinstance(first, Paragraph) and first.warning and first.text == said
    assert said not in texts(analysed(Kind.MOS, people=True), "en")


def test_a_report_shows_results_with_and_without_the_raters_that_rules_leave_out() -> None:
    found = analysed(Kind.MOS, with_trap=True)
    words = texts(found, "en")
    assert "Conditions, after screening" in words and "Conditions, everyone" in words
    assert "Who was left out" in words and "r00\ntraps\n100%" in words
    assert "Conditions, after screening" not in texts(analysed(Kind.MOS), "en")


def test_anchors_and_the_reference_are_named_for_what_they_are() -> None:
    drawn = simulated(Kind.MUSHRA)
    names = {"c1": "plain", "c2": "fine", "anchor35": "anchor35"}
    study = replace(drawn.study(), conditions=names, reference="c2", anchors=("anchor35",))
    answers = [
        replace(a, condition="anchor35" if a.condition == "c3" else a.condition) for a in drawn.answers()
    ]
    words = texts(analyse(answers, study), "en")
    assert "anchor, 3.5 kHz" in words and "fine (reference)" in words and "anchor35" not in words


def test_intelligibility_without_an_error_has_no_infinite_figure() -> None:
    drawn = simulated(Kind.INTELLIGIBILITY)
    told = texts(analyse([replace(a, score=0.0) for a in drawn.answers()], drawn.study(), Options()), "en")
    assert "no upper end" in told and not re.search(r"\binf", told)


def test_few_raters_are_said_to_be_few() -> None:
    assert "5 raters are few" in texts(analysed(Kind.MOS, 5), "en")
    assert "are few" not in texts(analysed(Kind.MOS, 8), "en")


def test_a_report_says_how_often_such_intervals_held_the_truth_in_simulation() -> None:
    words = texts(analysed(Kind.AB, 30), "en")
    found = re.findall(
        r"In 1000 simulated tests of this kind with 20 listeners, the 95 % intervals of (\w+)", words
    )
    assert found == ["values", "strengths"]


@pytest.mark.parametrize("kind", list(Kind))
def test_a_report_says_where_intervals_of_so_few_raters_held_the_truth_too_seldom(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No measured row falls short, so one is made to: the sentence must follow the figures, by kind and number."""
    short = [
        row._replace(held=0.921) if (row.kind, row.raters) == (kind, 8) else row for row in coverage.measured()
    ]
    said = catalogue("en")["report.covered_short"]
    assert said not in texts(analysed(kind, 9), "en")
    monkeypatch.setattr(coverage, "measured", lambda: tuple(short))
    for language in LANGUAGES:
        told = texts(analysed(kind, 9), language)
        assert catalogue(language)["report.covered_short"] in told and "92.1%" in told
        assert catalogue(language)["report.covered_short"] not in texts(analysed(kind, 20), language)
    method = document(analysed(kind, 9), "en").sections[-1]
    assert any(isinstance(block, Paragraph) and block.warning for block in method.blocks)
    assert said in render_html(analysed(kind, 9), "en")


def test_a_report_without_answers_says_that_there_are_none() -> None:
    study = simulated(Kind.MOS).study()
    assert "There are no answers yet." in render_html(analyse([], study), "en")
    assert render_pdf(analyse([], study), "zh").startswith(b"%PDF-")


@pytest.mark.parametrize("form", ["png", "svg"])
def test_pictures_are_files_and_the_same_for_the_same_answers(form: str) -> None:
    found = analysed(Kind.CMOS)
    drawn = render_picture(found, "answers", form, "zh")
    assert drawn.startswith(b"\x89PNG" if form == "png" else b"<?xml")
    assert drawn == render_picture(found, "answers", form, "zh")


def test_a_picture_that_does_not_exist_is_refused() -> None:
    for name, form in (("nothing", "png"), ("ranking", "png"), ("values", "exe")):
        with pytest.raises(KeyError):
            render_picture(analysed(Kind.MOS), name, form)


def test_the_same_answers_give_the_same_pdf_which_says_its_language() -> None:
    found = analysed(Kind.ABX)
    written = render_pdf(found, "zh")
    assert written.startswith(b"%PDF-") and b"(zh-CN)" in written
    assert written == render_pdf(found, "zh")


def test_numbers_of_the_tables_are_those_of_the_analysis() -> None:
    found = analysed(Kind.ABX)
    cell = found.everyone.cells[0]
    assert f"{cell.value.value:.1%}\n{cell.value.low:.1%} to {cell.value.high:.1%}" in texts(found, "en")


def measured(kind: Kind, absent: dict[str, str]) -> Companion:
    drawn = simulated(kind)
    clips = [
        Clip(f"i{item}", condition, error_ratio=0.3 - 0.1 * k + 0.01 * item, loudness_lufs=-23.0)
        for k, condition in enumerate(drawn.study().conditions)
        for item in range(8)
    ]
    return companion(to_json(clips, absent), drawn.answers(), drawn.study())


def test_measures_are_correlated_with_the_answers_about_the_same_clips() -> None:
    [found] = correlations(measured(Kind.MOS, {}))  # loudness does not vary, the others were not measured
    assert (found.measure, found.clips) == ("error_ratio", 24)
    assert found.rho < -0.5  # the clips of better conditions were given fewer errors


def test_answers_about_pairs_are_correlated_with_differences_of_measures() -> None:
    heard = tuple((f"i{k}", "c1", "c2", 1 - k / 6) for k in range(6))
    clips = [Clip(f"i{k}", "c1", rate=3 + k % 2) for k in range(6)]
    clips += [Clip(f"i{k}", "c2", rate=3 + k % 2 + k) for k in range(6)]
    [found] = correlations(Companion(tuple(clips), {}, heard))
    assert (found.measure, found.rho) == ("rate", pytest.approx(1))


def test_correlation_is_perfect_where_answers_follow_the_measure() -> None:
    heard = tuple((f"i{k}", "c1", "", float(k)) for k in range(6))
    clips = tuple(Clip(f"i{k}", "c1", dnsmos=1 + k / 2) for k in range(6))
    [found] = correlations(Companion(clips, {}, heard))
    assert (found.measure, found.rho, found.r) == ("dnsmos", pytest.approx(1), pytest.approx(1))


def test_measures_whose_tools_are_absent_are_left_out_and_said() -> None:
    words = texts(analysed(Kind.MOS), "en", measured(Kind.MOS, {"dnsmos": "speechmos is not installed"}))
    assert "DNSMOS overall was left out: speechmos is not installed" in words
    assert "Loudness (LUFS)" in words and "Speaker similarity" not in words


def test_every_sentence_of_a_report_exists_in_both_languages() -> None:
    for language in LANGUAGES:
        for kind in Kind:
            texts(analysed(kind, with_trap=True), language, measured(kind, {"rate": "-"}))


def test_the_committed_report_says_what_the_code_says_of_the_committed_answers() -> None:
    """Its drawings aside, which another version of a font library may round otherwise."""
    out = Path(__file__).resolve().parents[2] / "docs" / "listening" / "flow-steps"
    analysis, beside = comparison.read(out)
    for language in LANGUAGES:
        written = without_drawings((out / f"report-{language}.html").read_text(encoding="utf-8"))
        assert written == without_drawings(render_html(analysis, language, beside))
        assert catalogue(language)["report.simulated"] in written


def without_drawings(page: str) -> str:
    return re.sub("<svg.*?</svg>", "", page, flags=re.S)
