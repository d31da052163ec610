"""A report as one HTML page that needs nothing else: styles and pictures are inside, and nothing is fetched."""

from __future__ import annotations

from html import escape

from studio.listening.companion import Companion
from studio.listening.report.blocks import Block, Paragraph, Picture, Table
from studio.listening.report.document import document
from studio.listening.report.pictures import render_picture
from studio.listening.statistics.analysis import Analysis

STYLE = """
:root { color-scheme: light dark; --ink: #1f2937; --page: #fff; --line: #d1d5db; --soft: #f3f4f6; --warn: #92400e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e5e7eb; --page: #111827; --line: #4b5563; --soft: #1f2937; --warn: #fcd34d; }
}
body { margin: 0 auto; padding: 1.5rem; max-width: 60rem; background: var(--page); color: var(--ink);
  font: 1rem/1.55 system-ui, "Noto Sans SC", "PingFang SC", "Microsoft YaHei", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; } h2 { margin-top: 2.2rem; font-size: 1.2rem; border-bottom: 1px solid var(--line); }
.scroll { overflow-x: auto; margin-block: 1rem; } .scroll:focus-visible { outline: 2px solid; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: start; font-weight: 600; padding: .4rem 0; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: start; vertical-align: top; }
thead th { background: var(--soft); } tbody th { font-weight: 400; }
table { overflow-wrap: break-word; } th, td { min-width: 4.2rem; } tbody th { min-width: 9rem; }
.warning { border-inline-start: .3rem solid var(--warn); padding: .5rem .8rem;
  background: var(--soft); font-weight: 600; }
figure { margin: 1.2rem 0; padding: .5rem; background: #fff; border-radius: .4rem; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { color: #374151; font-size: .9rem; padding: .3rem; }
@media print { body { max-width: none; } figure, table { break-inside: avoid; } }
"""


def render_html(analysis: Analysis, language: str = "en", companion: Companion | None = None) -> str:
    """The report as a page; names and comments in it are escaped."""
    told = document(analysis, language, companion)
    body = [f"<h1>{escape(told.title)}</h1>"]
    for section in told.sections:
        blocks = "\n".join(_block(block, analysis, language) for block in section.blocks)
        body.append(f"<section><h2>{escape(section.title)}</h2>\n{blocks}</section>")
    tag = "zh-Hans" if language == "zh" else "en"
    return (
        f'<!doctype html>\n<html lang="{tag}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(told.title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main>\n{chr(10).join(body)}\n</main></body></html>\n"
    )


def _block(block: Block, analysis: Analysis, language: str) -> str:
    if isinstance(block, Paragraph):
        return (
            f'<p class="warning" role="note">{escape(block.text)}</p>'
            if block.warning
            else f"<p>{escape(block.text)}</p>"
        )
    if isinstance(block, Picture):
        return _figure(block, analysis, language)
    return _table(block)


def _figure(block: Picture, analysis: Analysis, language: str) -> str:
    drawn = render_picture(analysis, block.name, "svg", language).decode("utf-8")
    drawn = drawn[drawn.index("<svg") :]
    # Several pictures on one page would share the ids of their clip paths.
    for mark in ('id="', 'href="#', "url(#"):
        drawn = drawn.replace(mark, f"{mark}{block.name}-")
    shows = escape(block.shows)
    return (
        f'<figure><div role="img" aria-label="{shows}">{drawn}</div><figcaption>{shows}</figcaption></figure>'
    )


def _table(block: Table) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in block.head)
    rows = "\n".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in block.rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(block.caption)}"><table>'
        f"<caption>{escape(block.caption)}</caption>"
        f"<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>"
    )
