"""Checkpoints from a hub on this machine: redirects, ranges, 5xx, cut connections, wrong hashes, a full disk."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from studio.checkpoint import check_files
from studio.errors import HubError
from studio.hub.__main__ import main
from studio.hub.download import MANIFEST, PATIENCE, Download
from studio.hub.listing import Repository
from studio.settings import load
from tests import hub_server
from tests.hub_server import COMMIT, REPOSITORY, Fault, Hub
from tests.unit.test_checkpoint import OFFICIAL

LLM = "llm.pt"


@pytest.fixture
def hub() -> Iterator[Hub]:
    """The official names, content of our own, and what no checkpoint needs beside them."""
    files = {name: f"{name} ".encode() * 20 for name in OFFICIAL}
    files |= {LLM: bytes(range(256)) * 40_000, "flow.pt": b"flow" * 5000}
    files |= {"README.md": b"#", "CosyVoice-BlankEN/model.safetensors": b"unused" * 1000, "../evil": b"out" * 9}
    with hub_server.running(files) as running:
        yield running


class Waits(list[float]):
    """Stands for asyncio.sleep: keeps how long it was to be, and waits for nothing."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def download_of(hub: Hub, root: Path, waits: Waits | None = None, name: str = "huggingface") -> Download:
    repository = Repository(REPOSITORY, name, "", hub.url + "/")  # type: ignore[arg-type]
    return Download(repository, root, sleep=Waits() if waits is None else waits)


def assert_whole(folder: Path, hub: Hub) -> None:
    """Every file of the layout as the hub has it, nothing else."""
    assert {str(p.relative_to(folder)) for p in check_files(folder)} == set(OFFICIAL)
    assert all((folder / name).read_bytes() == hub.files[name] for name in OFFICIAL)
    found = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert found == {*OFFICIAL, MANIFEST, ".lock"}


@pytest.mark.parametrize("name", ["huggingface", "modelscope"])
async def test_only_the_files_of_a_checkpoint_are_fetched(hub, tmp_path, name):
    download = download_of(hub, tmp_path, name=name)
    folder = await download.run()
    assert_whole(folder, hub)
    assert folder.parent == tmp_path and REPOSITORY.replace("/", "--") in folder.name
    assert download.progress.done_bytes == download.progress.total_bytes == sum(len(hub.files[n]) for n in OFFICIAL)


async def test_the_revision_is_pinned_and_a_second_start_asks_nobody(hub, tmp_path):
    folder = await download_of(hub, tmp_path).run()
    assert json.loads((folder / MANIFEST).read_text())["files"][1]["revision"] == COMMIT
    asked = len(hub.asked)
    assert await download_of(hub, tmp_path).run() == folder
    assert len(hub.asked) == asked


async def test_a_cut_connection_goes_on_where_it_broke(hub, tmp_path):
    hub.faults[LLM] = [Fault(cut_after=3_000_000), Fault(cut_after=5_000_000)]
    waits = Waits()
    assert_whole(await download_of(hub, tmp_path, waits).run(), hub)
    first, *later = hub.ranges(LLM)
    starts = [int(r.removeprefix("bytes=").rstrip("-")) for r in later]
    assert first == "" and len(starts) == 2
    assert 0 < starts[0] <= 3_000_000 and starts[0] < starts[1] <= starts[0] + 5_000_000
    assert waits == [1.0, 1.0]  # bytes came in between, so the wait does not grow


async def test_a_download_that_was_ended_is_taken_up_by_the_next_start(hub, tmp_path):
    hub.faults[LLM] = [Fault(cut_after=4_000_000), *[Fault(status=503)] * PATIENCE]
    with pytest.raises(HubError, match=r"What came is kept; start again to go on"):
        await download_of(hub, tmp_path).run()
    again = download_of(hub, tmp_path)
    assert_whole(await again.run(), hub)
    assert 0 < again.progress.had_bytes < again.progress.total_bytes
    assert hub.ranges(LLM)[-1].startswith("bytes=") and hub.asked.count(("listing", "")) == 1


@pytest.mark.parametrize("name", ["huggingface", "modelscope"])
async def test_a_start_with_another_endpoint_goes_on_there(hub, tmp_path, name):
    hub.faults[LLM] = [Fault(cut_after=4_000_000), *[Fault(status=503)] * PATIENCE]
    with pytest.raises(HubError, match=r"or a mirror in HF_ENDPOINT"):
        await download_of(hub, tmp_path, name=name).run()
    asked = len(hub.asked)
    with hub_server.running(hub.files) as mirror:
        assert_whole(await download_of(mirror, tmp_path, name=name).run(), hub)
    assert len(hub.asked) == asked and mirror.ranges(LLM)[0].startswith("bytes=")


async def test_a_damaged_listing_is_made_anew(hub, tmp_path):
    folder = await download_of(hub, tmp_path).run()
    for damaged in ("{", "[]", '{"files": [{"path": "llm.pt"}]}'):
        (folder / MANIFEST).write_text(damaged)
        assert_whole(await download_of(hub, tmp_path).run(), hub)


async def test_5xx_and_429_are_waited_out_and_the_hub_says_how_long(hub, tmp_path):
    hub.faults["listing"] = [Fault(status=502), Fault(status=500)]
    hub.faults["flow.pt"] = [Fault(status=503), *(Fault(status=429, retry_after=s) for s in ("7", "900"))]
    waits = Waits()
    assert_whole(await download_of(hub, tmp_path, waits).run(), hub)
    assert waits == [1.0, 2.0, 1.0, 7.0, 30.0]


async def test_a_hub_that_stays_away_is_given_up_with_the_remedy(hub, tmp_path):
    hub.faults["listing"] = [Fault(status=503)] * PATIENCE
    waits = Waits()
    with pytest.raises(HubError, match=r"HTTP 503.*--hub modelscope or a mirror in HF_ENDPOINT"):
        await download_of(hub, tmp_path, waits).run()
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    nobody = Repository(REPOSITORY, endpoint="http://127.0.0.1:9")
    with pytest.raises(HubError, match="ConnectError"):
        await Download(nobody, tmp_path, sleep=Waits()).run()


async def test_a_server_that_ignores_ranges_begins_anew(hub, tmp_path):
    hub.faults[LLM] = [Fault(cut_after=3_000_000), Fault(ignores_range=True)]
    assert_whole(await download_of(hub, tmp_path).run(), hub)


@pytest.mark.parametrize("fault", [Fault(flips_a_bit=True), Fault(too_long=True)])
@pytest.mark.parametrize("name", ["flow.pt", "cosyvoice2.yaml"])  # a sha256, and git's own hash
async def test_wrong_content_is_fetched_anew_once_and_never_kept(hub, tmp_path, name, fault):
    hub.faults[name] = [fault]
    assert_whole(await download_of(hub, tmp_path).run(), hub)
    shutil.rmtree(tmp_path)
    hub.faults[name] = [fault] * 2
    with pytest.raises(HubError, match=rf"{name} from 127.0.0.1 is twice not what its hub lists"):
        await download_of(hub, tmp_path).run()
    (folder,) = tmp_path.iterdir()
    assert not [p for p in folder.rglob("*") if p.name.startswith(name)]


async def test_a_part_that_is_damaged_on_disk_is_fetched_anew(hub, tmp_path):
    download = download_of(hub, tmp_path)
    part = download.folder / f"{LLM}.part"
    part.parent.mkdir()
    part.write_bytes(b"x" * 1000)
    assert_whole(await download.run(), hub)
    assert hub.ranges(LLM) == ["bytes=1000-", ""]


async def test_too_small_a_disk_is_told_before_a_file_is_fetched(hub, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=20_000_000))
    with pytest.raises(HubError, match=r"needs 0\.3 GB in .*; 0\.0 GB are free.*--cache-dir"):
        await download_of(hub, tmp_path).run()
    assert hub.asked == [("listing", "")]


async def test_names_that_do_not_exist_and_other_repositories_are_told(hub, tmp_path):
    unknown = Repository("nobody/nothing", endpoint=hub.url)
    with pytest.raises(HubError, match=r"answers 404 to .*nobody/nothing.*Check the name in --model-dir"):
        await Download(unknown, tmp_path).run()
    del hub.files["flow.pt"]
    with pytest.raises(HubError, match=r"is no checkpoint of CosyVoice 2: it has no flow\.pt"):
        await download_of(hub, tmp_path).run()
    hub.huggingface_listing = lambda: {"error": "none"}  # type: ignore[method-assign]
    with pytest.raises(HubError, match=r"gives no listing of FunAudioLLM/CosyVoice2-0\.5B"):
        await download_of(hub, tmp_path).run()


async def test_two_programs_do_not_fetch_into_one_folder(hub, tmp_path):
    download = download_of(hub, tmp_path)
    download.folder.mkdir()
    with (download.folder / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(HubError, match="Another program is fetching"):
            await download.run()


@pytest.mark.parametrize(
    ("name", "is_repository"),
    [(REPOSITORY, True), *((path, False) for path in ("assets/voice", "/models/CosyVoice2", "../up/there", "one"))],
)
def test_what_is_no_folder_and_looks_like_a_name_is_a_repository(name, is_repository):
    assert (Repository.of(load(["--model-dir", name], {})) is not None) == is_repository


def test_hf_endpoint_counts_for_hugging_face_alone_and_after_our_own_setting():
    environ = {"HF_ENDPOINT": "https://hf-mirror.com/"}
    bases = [
        Repository.of(load(["--model-dir", REPOSITORY, *more], environ)).base  # type: ignore[union-attr]
        for more in ([], ["--hub", "modelscope"], ["--hub-endpoint", "http://ours"])
    ]
    assert bases == ["https://hf-mirror.com", "https://modelscope.cn", "http://ours"]


def test_the_command_fetches_beforehand_and_prints_the_folder(hub, tmp_path, capsys):
    flags = ["--hub-endpoint", hub.url, "--cache-dir", str(tmp_path)]
    assert main([REPOSITORY, *flags]) == 0
    assert_whole(Path(capsys.readouterr().out.strip()), hub)
    assert main(["nobody/nothing", *flags]) == 1
    assert "Check the name in --model-dir" in capsys.readouterr().err
    assert main([]) == 2
