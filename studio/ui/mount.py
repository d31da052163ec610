"""Puts the page into the web application; the one place that hands Gradio an application of ours."""

from __future__ import annotations

import gradio as gr
from fastapi import FastAPI

from studio.ui.blocks import Page


def mount_page(app: FastAPI, page: Page) -> FastAPI:
    """The application with the page at /, behind all routes that it has already."""
    return gr.mount_gradio_app(app, page.blocks, path="/", **page.mount)
