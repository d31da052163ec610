"""What open Admin pages cost: pollers that ask as assets/web/admin.js does, and the CPU share of the web process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import httpx

from studio.bench.figures import percentile

LOOK_S = 1.0
HISTORY_EVERY = 10
"""admin.js: so long after a reply it looks again, and at every tenth look it draws the charts anew."""
ON_OPENING = ("/admin/knobs", "/admin/presets", "/admin/changes")


async def rows(
    url: str, password: str, pages: int, looks: int, cpu_s: Callable[[], float], look_s: float = LOOK_S
) -> list[dict[str, object]]:
    """A row without pages, for as long as their looks take, and a row with them.

    Args:    cpu_s: CPU seconds that the web process has used. looks: of each page, one every look_s and a reply.
    Returns: pages, replies, reply_p95_ms, and web_cpu in cores: 0.1 is a tenth of one.
    Raises:  httpx.HTTPStatusError if the password is wrong.
    """
    async with httpx.AsyncClient(base_url=url) as client:
        (await client.post("/admin/login", json={"password": password})).raise_for_status()
        cookies = dict(client.cookies)
    return [await one_row(url, cookies, number, looks, cpu_s, look_s) for number in (0, pages)]


async def one_row(
    url: str, cookies: dict[str, str], pages: int, looks: int, cpu_s: Callable[[], float], look_s: float
) -> dict[str, object]:
    took_s: list[float] = []

    async def page(number: int) -> None:
        await asyncio.sleep(number * look_s / pages)  # people do not open theirs at the same instant
        async with httpx.AsyncClient(base_url=url, cookies=cookies) as client:
            for path in ON_OPENING:
                (await client.get(path)).raise_for_status()
            for look in range(looks):
                begun_s = time.monotonic()
                (await client.get("/admin/live")).raise_for_status()
                took_s.append(time.monotonic() - begun_s)
                if look % HISTORY_EVERY == 0:
                    (await client.get("/admin/history?span=10m")).raise_for_status()
                await asyncio.sleep(look_s)

    before_s, begun_s = cpu_s(), time.monotonic()
    await asyncio.gather(asyncio.sleep(looks * look_s), *(page(number) for number in range(pages)))
    used = (cpu_s() - before_s) / (time.monotonic() - begun_s)
    p95_ms = round(1000 * percentile(took_s, 0.95), 1) if took_s else "-"
    return {"pages": pages, "replies": len(took_s), "reply_p95_ms": p95_ms, "web_cpu": round(used, 3)}
