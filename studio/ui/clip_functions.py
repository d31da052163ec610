"""What gradio_client may do with a clip, by stable English names; all of it is in /v1/audio/clips too."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

import gradio as gr

from studio.audio.check import usable_clip
from studio.audio.decode import decode_clip
from studio.audio.mend import mend
from studio.audio.threads import in_clip_thread
from studio.checks.clip import as_heard, examine_clip
from studio.errors import InvalidRequest, StudioError
from studio.protocols import Ears
from studio.ui.tabs.clone_events import as_sound

T = TypeVar("T")


def clip_functions(clip: gr.Audio, ears: Ears) -> None:
    """/check_clip, /mend_clip and /transcribe_clip. clip: the field whose checks of files they share."""

    async def check_clip(path: str | None) -> dict[str, Any]:
        """Severity and sentence of each topic, whether it can be cloned, and whether /mend_clip betters it."""
        found = (await told(examine_clip(await given(path), ears))).diagnosis
        topics = {f.topic: {"severity": f.severity, "message": f.message("en")} for f in found.findings}
        return {"severity": found.severity, "usable": found.usable, "mendable": found.mendable, "topics": topics}

    async def mend_clip(path: str | None) -> Any:
        """The clip at its best, 24 kHz."""
        data = await given(path)
        mended = await told(in_clip_thread(lambda: mend(decode_clip(data))))
        return as_sound(mended.samples, mended.sample_rate_hz)

    async def transcribe_clip(path: str | None) -> str:
        """What is heard in the clip."""
        data = await given(path)
        heard = await told(in_clip_thread(usable_clip, data))
        return (await told(ears.transcribe(as_heard(heard.samples, heard.sample_rate_hz)))).text

    ask = gr.Button(visible=False)
    outputs: dict[Any, Any] = {
        check_clip: gr.JSON(visible=False),
        mend_clip: gr.Audio(visible=False),
        transcribe_clip: gr.Textbox(visible=False),
    }
    for function, output in outputs.items():
        ask.click(function, clip, output, api_name=function.__name__, show_progress="hidden")


async def given(path: str | None) -> bytes:
    if not path:
        raise gr.Error(InvalidRequest("clip.missing").message("en"))
    return await in_clip_thread(Path(path).read_bytes)


async def told(work: Awaitable[T]) -> T:
    """What the work gives; what it refuses as Gradio tells it."""
    try:
        return await work
    except StudioError as error:
        raise gr.Error(error.message("en")) from None
