"""A report as PDF, laid out with reportlab in a font that is embedded, so that Chinese shows everywhere."""

from __future__ import annotations

import io
from functools import cache
from html import escape
from typing import Any

from studio.listening.companion import Companion
from studio.listening.report.blocks import Block, Paragraph, Picture, Table
from studio.listening.report.document import document
from studio.listening.report.pictures import FONT, render_picture
from studio.listening.statistics.analysis import Analysis

FONT_NAME = "report"
MARGIN_POINTS = 48


def render_pdf(analysis: Analysis, language: str = "en", companion: Companion | None = None) -> bytes:
    """The report as PDF on A4; the same answers give the same file."""
    from reportlab.lib.pagesizes import A4
    from reportlab.platypus import SimpleDocTemplate

    told, out = document(analysis, language, companion), io.BytesIO()
    page = SimpleDocTemplate(
        out, pagesize=A4, title=told.title, author="CosyVoice Studio", lang="zh-CN" if language == "zh" else "en",
        leftMargin=MARGIN_POINTS, rightMargin=MARGIN_POINTS, topMargin=MARGIN_POINTS, bottomMargin=MARGIN_POINTS,
        invariant=1,
    )  # fmt: skip
    story: list[Any] = [_lines(told.title, "title")]
    for section in told.sections:
        story.append(_lines(section.title, "section"))
        for block in section.blocks:
            story += _block(block, analysis, language, page.width)
    page.build(story, onFirstPage=_number, onLaterPages=_number)
    return out.getvalue()


@cache
def _styles() -> dict[str, Any]:
    from reportlab.lib.colors import HexColor
    from reportlab.lib.styles import ParagraphStyle
    from reportlab.pdfbase.pdfmetrics import registerFont
    from reportlab.pdfbase.ttfonts import TTFont

    registerFont(TTFont(FONT_NAME, str(FONT)))
    text = ParagraphStyle("text", fontName=FONT_NAME, fontSize=9.5, leading=14, spaceAfter=6)
    return {
        "text": text,
        "title": ParagraphStyle("title", text, fontSize=18, leading=24, spaceAfter=10),
        "section": ParagraphStyle("section", text, fontSize=13, leading=18, spaceBefore=14, keepWithNext=1),
        "caption": ParagraphStyle("caption", text, textColor=HexColor("#374151"), spaceBefore=6, keepWithNext=1),
        "shown": ParagraphStyle("shown", text, textColor=HexColor("#374151")),
        "cell": ParagraphStyle("cell", text, fontSize=8, leading=10.5, spaceAfter=0),
        "warning": ParagraphStyle(
            "warning", text, textColor=HexColor("#92400e"), backColor=HexColor("#fffbeb"), borderPadding=5,
            spaceBefore=8, spaceAfter=12,
        ),
    }  # fmt: skip


def _lines(text: str, style: str) -> Any:
    """Text that wraps between words, or between any two characters where it is Chinese."""
    from reportlab.lib.styles import ParagraphStyle
    from reportlab.platypus import Paragraph as Lines

    chinese = any("\u2e80" <= letter <= "\uffef" for letter in text)
    found = _styles()[style]
    return Lines(escape(text), ParagraphStyle(style, found, wordWrap="CJK") if chinese else found)


def _number(canvas: Any, page: Any) -> None:
    canvas.setFont(FONT_NAME, 8)
    canvas.drawRightString(page.pagesize[0] - MARGIN_POINTS, MARGIN_POINTS / 2, str(page.page))


def _block(block: Block, analysis: Analysis, language: str, width: float) -> list[Any]:
    if isinstance(block, Paragraph):
        return [_lines(block.text, "warning" if block.warning else "text")]
    if isinstance(block, Picture):
        return _picture(block, analysis, language, width)
    return [_lines(block.caption, "caption"), _table(block, width)]


def _picture(block: Picture, analysis: Analysis, language: str, width: float) -> list[Any]:
    from reportlab.lib.utils import ImageReader
    from reportlab.platypus import Image, KeepTogether

    drawn = io.BytesIO(render_picture(analysis, block.name, "png", language))
    across, down = ImageReader(drawn).getSize()
    drawn.seek(0)
    shown = Image(drawn, width=width, height=width * down / across)
    return [KeepTogether([shown, _lines(block.shows, "shown")])]


def _table(block: Table, width: float) -> Any:
    from reportlab.lib.colors import HexColor
    from reportlab.platypus import Table as Grid

    rows = [[_lines(text, "cell") for text in row] for row in (block.head, *block.rows)]
    columns = len(block.head)
    first = width * (0.5 if columns == 2 else 0.26 if columns > 4 else 0.34)
    rest = (width - first) / max(columns - 1, 1)
    line = HexColor("#d1d5db")
    return Grid(
        rows, colWidths=[first, *[rest] * (columns - 1)], repeatRows=1, spaceAfter=10,
        style=[
            ("BACKGROUND", (0, 0), (-1, 0), HexColor("#f3f4f6")), ("LINEBELOW", (0, 0), (-1, -1), 0.5, line),
            ("VALIGN", (0, 0), (-1, -1), "TOP"), ("LEFTPADDING", (0, 0), (-1, -1), 4),
        ],
    )  # fmt: skip
