"""The pictures of a report, drawn with matplotlib: PNG for documents, SVG for pages. Tables hold the same numbers."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from studio.listening.answers import PAIRED, SCALES, Kind
from studio.listening.report.wording import SHARES, Wording
from studio.listening.statistics.analysis import NEUTRAL, Analysis, CellResult, Contrast
from studio.listening.statistics.intervals import Interval
from studio.listening.statistics.power import POWER, power

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FONT = Path(__file__).resolve().parents[3] / "assets" / "fonts" / "wqy-microhei-gb2312.ttf"
FORMATS = {"png": "image/png", "svg": "image/svg+xml"}
WIDTH_INCHES = 7.2
DPI = 150
INK, MUTED, ACCENT, WARNING = "#1f2937", "#9ca3af", "#4338ca", "#b45309"
# Kinds whose scale has few enough points to count the answers at each.
COUNTED = frozenset({Kind.MOS, Kind.CMOS, Kind.AB, Kind.ABX, Kind.SIMILARITY})


def picture_names(analysis: Analysis) -> list[str]:
    """Which pictures there are of these answers."""
    result = analysis.screened
    names = ["values"] * bool(result.cells)
    names += ["answers"] * (bool(result.cells) and analysis.study.kind in COUNTED)
    names += ["differences"] * bool(result.contrasts)
    names += ["power"] * any(row.effect for row in result.contrasts)
    names += ["ranking"] * bool(result.ranking and result.ranking.rows)
    return names


def render_picture(analysis: Analysis, name: str, form: str = "png", language: str = "en") -> bytes:
    """One picture as a file.

    Args:    name: one of `picture_names`; form: one of `FORMATS`.
    Raises:  KeyError if there is no such picture or form.
    """
    if name not in picture_names(analysis) or form not in FORMATS:
        raise KeyError(name if form in FORMATS else form)
    from matplotlib import rc_context

    with rc_context(_style()):
        words = Wording(analysis.study, language)
        figure = DRAWN[name](analysis, words)
        if analysis.study.simulated:  # a picture travels without its report
            figure.suptitle(words.say("simulated_mark"), x=0.01, ha="left", fontsize=9, color=WARNING)
        out = io.BytesIO()
        # Without dates and names of programs, the same answers give the same file.
        metadata = {"Date": None} if form == "svg" else {"Software": None}
        figure.savefig(out, format=form, dpi=DPI, metadata=metadata)
    return out.getvalue()


@cache
def _style() -> dict[str, Any]:
    """Our font, since machines have none for Chinese that can be relied on; SVG holds outlines."""
    from matplotlib import font_manager

    font_manager.fontManager.addfont(str(FONT))
    family = font_manager.FontProperties(fname=str(FONT)).get_name()
    colours = {f"{part}.color": INK for part in ("text", "xtick", "ytick")}
    return colours | {
        "font.family": [family, "sans-serif"], "font.size": 10, "axes.labelcolor": INK,
        "axes.edgecolor": MUTED,   "axes.spines.top": False,
        "axes.spines.right": False, "svg.fonttype": "path", "svg.hashsalt": "studio", "figure.facecolor": "white",
    }  # fmt: skip


def _figure(rows: int, label: str, percent: bool = False) -> tuple[Figure, Axes]:
    """An empty picture with a place for each of `rows` names, the first on top."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import PercentFormatter

    figure = Figure(
        figsize=(WIDTH_INCHES, 1.1 + 0.45 * max(rows, 1)), layout=ConstrainedLayoutEngine(w_pad=0.1)
    )
    axes = figure.subplots()
    axes.set_xlabel(label)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.grid(axis="x", color="#e5e7eb")
    axes.set_axisbelow(True)
    if percent:
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return figure, axes


def _named(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), [_short(name) for name in names])


def _short(name: str) -> str:
    return name if len(name) <= 40 else name[:39] + "…"


def _whisker(axes: Axes, at: float, found: Interval, colour: str, label: str = "") -> None:
    """A value and its interval; an end that is not known is not drawn."""
    if found.low is not None and found.high is not None:
        axes.plot([found.low, found.high], [at, at], color=colour, linewidth=2.5, solid_capstyle="round")
    axes.plot(found.value, at, "o", color=colour, markersize=7, markeredgecolor="white", label=label or None)


def _values(analysis: Analysis, words: Wording) -> Figure:
    kind, cells = analysis.study.kind, analysis.screened.cells
    figure, axes = _figure(len(cells), words.say(f"axis.{kind.value}"), kind in SHARES)
    everyone = {(cell.condition, cell.against): cell for cell in analysis.everyone.cells}
    left_out = bool(analysis.screening.exclusions)
    for k, cell in enumerate(cells):
        _raters(axes, k, cell, words.say("each_rater") if k == 0 else "")
        if left_out:
            before = everyone[cell.condition, cell.against].value
            _whisker(axes, k + 0.2, before, MUTED, words.say("everyone") if k == 0 else "")
        _whisker(
            axes, k, cell.value, ACCENT, words.say("screened" if left_out else "everyone") if k == 0 else ""
        )
    _named(axes, [words.cell(cell.condition, cell.against) for cell in cells])
    low, high = SCALES[kind]
    if np.isfinite(high):
        axes.set_xlim(low - 0.03 * (high - low), high + 0.03 * (high - low))
    if kind in NEUTRAL:
        axes.axvline(NEUTRAL[kind], color=INK, linewidth=1, linestyle="--")
    figure.legend(loc="outside upper right", ncols=3, frameon=False, fontsize=9)
    return figure


def _raters(axes: Axes, at: float, cell: CellResult, label: str) -> None:
    """Each rater's value as a dot, spread a little in height by a fixed pattern so that equal ones show."""
    heights = at - 0.24 + 0.14 * np.modf(np.arange(len(cell.by_rater)) * 0.618)[0]
    axes.plot(cell.by_rater, heights, "o", color="#c7d2fe", markersize=3.5, label=label or None)


def _answers(analysis: Analysis, words: Wording) -> Figure:
    """How often each score was given, as bars that fill the width."""
    from matplotlib import colormaps

    kind, cells = analysis.study.kind, analysis.screened.cells
    figure, axes = _figure(len(cells), words.say("axis.share_of_answers"), percent=True)
    steps = sorted({score for cell in cells for score, _ in cell.scores} | set(_steps(kind)))
    colours = colormaps["cividis"](np.linspace(0.08, 0.98, len(steps)))
    left = np.zeros(len(cells))
    for step, colour in zip(steps, colours, strict=True):
        share = np.array([dict(cell.scores).get(step, 0) / max(cell.answers, 1) for cell in cells])
        axes.barh(
            range(len(cells)),
            share,
            left=left,
            height=0.62,
            color=colour,
            label=words.say(_step_key(kind, step)),
        )
        left += share
    axes.set_xlim(0, 1)
    _named(axes, [words.cell(cell.condition, cell.against) for cell in cells])
    figure.legend(loc="outside upper center", ncols=min(len(steps), 5), frameon=False, fontsize=8.5)
    figure.set_figheight(figure.get_figheight() + 0.2 * (len(steps) // 5 + 1))
    return figure


def _steps(kind: Kind) -> list[float]:
    low, high = SCALES[kind]
    return [float(step) for step in np.arange(low, high + 1)]


def _step_key(kind: Kind, step: float) -> str:
    return f"step.{kind.value}.{step + 0.0:g}"  # a zero may be −0


def _differences(analysis: Analysis, words: Wording) -> Figure:
    kind, rows = analysis.study.kind, analysis.screened.contrasts
    key = kind.value if kind in PAIRED else "conditions"
    figure, axes = _figure(len(rows), words.say(f"axis.difference.{key}"), kind in SHARES)
    axes.axvline(0, color=INK, linewidth=1, linestyle="--")
    for k, row in enumerate(rows):
        _whisker(axes, k, row.difference, ACCENT if row.corrected_p < 0.05 else MUTED)
    _named(axes, [_against(row, words) for row in rows])
    return figure


def _against(row: Contrast, words: Wording) -> str:
    return words.cell(row.first, row.second)


def _ranking(analysis: Analysis, words: Wording) -> Figure:
    ranking = analysis.screened.ranking
    assert ranking is not None  # picture_names asked
    figure, axes = _figure(len(ranking.rows), words.say("axis.strength"))
    axes.axvline(0, color=INK, linewidth=1, linestyle="--")
    for k, row in enumerate(ranking.rows):
        _whisker(axes, k, Interval(row.strength, row.low, row.high, 0), ACCENT)
    _named(axes, [words.name(row.condition) for row in ranking.rows])
    return figure


def _power(analysis: Analysis, words: Wording) -> Figure:
    """The chance to find the worthwhile difference, by the number of listeners, for each comparison."""
    have = analysis.screened.raters
    rows = [row for row in analysis.screened.contrasts if row.effect]
    most = max([2 * have, *((row.more or 0) + have for row in rows)])
    figure, axes = _figure(5, words.say("axis.listeners"))
    raters = np.unique(np.linspace(2, min(most * 1.2, 400), 60).round())
    for row in rows[:8]:
        sd = abs(row.difference.value / row.effect) if row.effect else 0.0
        chances = [power(float(n), min(analysis.difference / sd, 30.0)) if sd else np.nan for n in raters]
        axes.plot(raters, chances, linewidth=1.8, label=_short(_against(row, words)))
    axes.axhline(POWER, color=INK, linewidth=1, linestyle="--")
    axes.axvline(have, color=MUTED, linewidth=1)
    axes.set_ylim(0, 1.02)
    axes.set_ylabel(words.say("axis.power", difference=words.number(analysis.difference)))
    figure.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=8.5)
    return figure


DRAWN: dict[str, Callable[[Analysis, Wording], Figure]] = {
    "values": _values,
    "answers": _answers,
    "differences": _differences,
    "power": _power,
    "ranking": _ranking,
}
