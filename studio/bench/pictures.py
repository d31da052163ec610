"""Pictures of the bench's rows as SVG: stages of a waterfall as bars, and hop time along a speech. Reads no files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, BAR, LEFT = 760, 34, 96
COLOURS = (
    "#9ca3af", "#6b7280", "#4338ca", "#818cf8", "#f59e0b", "#047857", "#34d399", "#b45309", "#be123c",
)  # fmt: skip
"""In the order of `waterfall.STAGES`."""
INK = "#1f2937"


def bars(rows: Mapping[str, Mapping[str, float]]) -> str:
    """One bar a row, as long as its stages' milliseconds together, each stage in its colour; below what is what."""
    names = list(dict.fromkeys(name for stages in rows.values() for name in stages))
    scale = (WIDTH - LEFT - 70) / max(sum(stages.values()) for stages in rows.values())
    parts = []
    for number, (title, stages) in enumerate(rows.items()):
        y, x = 8 + number * (BAR + 14), float(LEFT)
        parts.append(_text(LEFT - 8, y + 21, title, "end"))
        for name, ms in stages.items():
            width = max(0.0, ms) * scale
            box = (
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{_colour(names, name)}">'
            )
            parts.append(f"{box}<title>{escape(name)}: {ms:.1f} ms</title></rect>")
            x += width
        parts.append(_text(x + 6, y + 21, f"{sum(stages.values()):.0f} ms"))
    top = 8 + len(rows) * (BAR + 14) + 10
    for number, name in enumerate(names):
        x, y = LEFT + (number % 3) * 210, top + (number // 3) * 20
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{_colour(names, name)}"/>')
        parts.append(_text(x + 18, y + 11, name))
    return _svg(top + 20 * -(-len(names) // 3) + 6, parts)


def lines(curves: Mapping[str, Sequence[float]], x_title: str, y_title: str, height: int = 260) -> str:
    """A line a curve over 1, 2, 3 ...; from 0 to the most of all."""
    most = max(max(curve) for curve in curves.values()) or 1.0
    longest = max(len(curve) for curve in curves.values())
    right, bottom, top = WIDTH - 150, height - 36, 16

    def place(number: int, value: float) -> str:
        x = LEFT + (right - LEFT) * number / max(1, longest - 1)
        return f"{x:.1f},{bottom - (bottom - top) * value / most:.1f}"

    axes = f'<path d="M{LEFT} {top}V{bottom}H{right}" fill="none" stroke="{INK}"/>'
    parts = [axes, _text(LEFT - 8, top + 5, f"{most:.4g}", "end"), _text(LEFT - 8, bottom, "0", "end")]
    parts += [
        _text(right, bottom + 18, str(longest), "end"),
        _text(LEFT, bottom + 32, f"{x_title}; {y_title}"),
    ]
    for number, (title, curve) in enumerate(curves.items()):
        colour = COLOURS[(2 + 3 * number) % len(COLOURS)]
        points = " ".join(place(n, value) for n, value in enumerate(curve))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = place(0, curve[-1]).partition(",")[2]
        parts.append(f'<text x="{right + 8}" y="{float(y) + 4:.1f}" fill="{colour}">{escape(title)}</text>')
    return _svg(height, parts)


def _colour(names: Sequence[str], name: str) -> str:
    return COLOURS[names.index(name) % len(COLOURS)]


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{INK}">{escape(words)}</text>'


def _svg(height: int, parts: Sequence[str]) -> str:
    about = f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {about}>'
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return "\n".join([head, ground, *parts, "</svg>"]) + "\n"
