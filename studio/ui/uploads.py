"""The page's Blocks, which take no file but one that was uploaded to them."""

from __future__ import annotations

from typing import Any

import gradio as gr
from gradio_client.utils import is_file_obj, is_http_url_like, traverse

from studio.messages import render
from studio.ui.tabs.events import language_of


class UploadsOnly(gr.Blocks):
    """Gradio judges where a file comes from only once `launch` was called, and fetches an address, however large.

    Mounted and without this, any event with a file among its fields would read whatever path a client names.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.has_launched = True

    async def process_api(
        self, block_fn: Any, inputs: list[Any], state: Any = None, request: Any = None, **named: Any
    ) -> dict[str, Any]:
        """As Gradio's. Raises gr.Error for an address where a file should be."""

        def refuse_address(file: dict[str, Any]) -> dict[str, Any]:
            if is_http_url_like(file["path"]):
                raise gr.Error(render("clip.url", language_of(request)), print_exception=False)
            return file

        traverse(inputs, refuse_address, is_file_obj)
        return await super().process_api(block_fn, inputs, state, request, **named)
