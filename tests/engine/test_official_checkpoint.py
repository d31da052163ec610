"""A checkpoint in the official layout through the path that a user takes: --model-dir, and speech over HTTP.

The small one comes by its name from a hub; the one of the official size, 3.5 GB of weights, lies in a folder.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from studio.bench.modes import every_mode
from studio.speech import MODES
from tests import hub_server
from tests.hub_server import REPOSITORY, Fault
from tests.official_layout import write_official
from tests.real_studio import RealStudio

ENGINE = ("--kv-cache-gib", "0.1", "--max-num-seqs", "2", "--max-model-len", "2048", "--log-level", "warning")


@pytest.fixture(scope="module")
def fetched(tmp_path_factory) -> Iterator[RealStudio]:
    """app.py on a checkpoint that it fetches itself, seen while that was going on."""
    whole, folder = write_official(tmp_path_factory.mktemp("official")), tmp_path_factory.mktemp("studio")
    files = {str(p.relative_to(whole)): p.read_bytes() for p in whole.rglob("*") if p.is_file()}
    released = threading.Event()
    with hub_server.running(files) as hub:
        hub.faults["llm.pt"] = [Fault(cut_after=1_200_000), Fault(status=503), Fault(waits_for=released)]
        studio = RealStudio(folder, "--model-dir", REPOSITORY, "--hub-endpoint", hub.url, *ENGINE)
        studio.start()
        try:
            watch_the_download(studio)
            released.set()
            studio.wait_ready()
            yield studio
        finally:
            released.set()
            studio.stop()


def watch_the_download(studio: RealStudio) -> None:
    """While the hub holds a file back: the page is there, says how far it is, and speech is told to wait."""
    studio.until(lambda: "HTTP 503" in str(studio.health()), "the download's trouble on the page")
    assert "arrival.js" in httpx.get(studio.url).text
    (worker,) = studio.health()["workers"]
    assert worker["name"] == "checkpoint" and 0 < worker["fraction"] < 1
    refused = httpx.post(f"{studio.url}/v1/audio/speech", json={"input": "Hi.", "voice": "Clara"})
    assert refused.status_code == 503 and "Retry-After" in refused.headers


async def spoken_in_every_mode(studio: RealStudio) -> None:
    """Sound in whole tokens from each mode of the official model; what it says is up to random weights."""
    async with httpx.AsyncClient(base_url=studio.url, timeout=280) as client:
        found = [spoken async for spoken in every_mode(client)]
    assert [spoken.mode for spoken in found] == list(MODES)
    assert [spoken.row() for spoken in found if not spoken.is_sound] == []


async def test_fetched_checkpoint_speaks_in_each_mode(fetched: RealStudio) -> None:
    await spoken_in_every_mode(fetched)


def test_fetched_checkpoint_is_named_as_on_its_hub_and_was_converted_once(fetched: RealStudio) -> None:
    (model,) = httpx.get(f"{fetched.url}/v1/models").json()["data"]
    assert model["id"] == REPOSITORY.partition("/")[2]
    assert len(list((fetched.folder / "data" / "cache").glob("speech-lm-*"))) == 1


@pytest.mark.full
@pytest.mark.timeout(1500)
async def test_checkpoint_of_the_official_size_speaks_in_each_mode(tmp_path: Path) -> None:
    folder = write_official(tmp_path / "official", "full")
    # Two steps of the solve in place of ten: how it sounds is not asked here, and ten take a minute more of a core.
    studio = RealStudio(tmp_path, "--model-dir", str(folder), "--flow-steps", "2", *ENGINE)
    try:
        studio.start()
        studio.wait_ready()
        await spoken_in_every_mode(studio)
    finally:
        studio.stop()
        shutil.rmtree(tmp_path, ignore_errors=True)  # 6 GB
