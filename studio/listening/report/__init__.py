"""Reports of listening tests: one document, written as a page, a PDF and pictures, in English and Chinese.

matplotlib and reportlab are imported inside functions, and only here.
"""

from studio.listening.report.document import document
from studio.listening.report.page import render_html
from studio.listening.report.paper import render_pdf
from studio.listening.report.pictures import FORMATS, picture_names, render_picture

__all__ = ["FORMATS", "document", "picture_names", "render_html", "render_pdf", "render_picture"]
