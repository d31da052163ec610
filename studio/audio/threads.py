"""Threads of their own for work on clips, so that it never keeps the texts waiting that are to be spoken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_CLIPS = ThreadPoolExecutor(2, thread_name_prefix="clips")


async def in_clip_thread(work: Callable[..., T], *given: object) -> T:
    """What the work gives or raises; it waits until other clips are done."""
    return await asyncio.get_running_loop().run_in_executor(_CLIPS, work, *given)
