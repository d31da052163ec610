"""Work on clips, however much of it, keeps no other work from its thread."""

from __future__ import annotations

import asyncio
import threading

from studio.audio.threads import in_clip_thread


async def test_texts_find_a_thread_while_more_clips_wait_than_there_are_threads() -> None:
    free = threading.Event()
    clips = [asyncio.create_task(in_clip_thread(free.wait, 300)) for _ in range(64)]
    try:
        await asyncio.sleep(0)  # all of them have asked for a thread
        assert await asyncio.wait_for(asyncio.to_thread(len, "text"), 120) == 4
    finally:
        free.set()
    assert all(await asyncio.gather(*clips))
