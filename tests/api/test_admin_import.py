"""What /admin/export writes is read again: by a start, and by the tab, which applies nothing of it by itself."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from studio.admin.knobs import tunable
from studio.settings import load
from tests.api.conftest import Service
from tests.api.test_admin import PASSWORD, enter, settle

OTHERS = {"max_running": 3, "hop_growth": 1.5, "async_scheduling": True, "lm_graphs": "pieces", "top_k": 7}


@pytest.fixture
def looked_after(start_service) -> Service:
    return start_service("--admin-password", PASSWORD)


def change(client: httpx.Client, service: Service, changes: dict[str, object]) -> None:
    client.post("/admin/apply", json={"changes": changes}).raise_for_status()
    settle(service)


def present(service: Service) -> dict[str, object]:
    return service.office.tuning.settings.model_dump(include=set(tunable()))


@pytest.mark.parametrize("form", ["toml", "env"])
def test_a_start_with_what_was_exported_has_the_same_settings(
    looked_after: Service, form: str, tmp_path: Path
) -> None:
    client = enter(looked_after)
    change(client, looked_after, OTHERS)
    written = client.get("/admin/export", params={"form": form}).text
    if form == "toml":
        file = tmp_path / "studio.toml"
        file.write_text(written)
        again = load(["--config", str(file)], {})
    else:
        again = load([], dict(line.split("=", 1) for line in written.splitlines()))
    assert again.model_dump(include=set(tunable())) == present(looked_after)


def read(client: httpx.Client, text: str, language: str = "en") -> httpx.Response:
    return client.post("/admin/import", json={"text": text}, headers={"Accept-Language": language})


@pytest.mark.parametrize("form", ["toml", "env"])
def test_the_tab_reads_back_what_was_exported(looked_after: Service, form: str) -> None:
    client = enter(looked_after)
    change(client, looked_after, OTHERS)
    exported, then = client.get("/admin/export", params={"form": form}).text, present(looked_after)
    change(client, looked_after, {"max_running": 9, "top_k": 50, "top_p": 0.5, "lm_graphs": "decode"})
    now, changes = present(looked_after), len(client.get("/admin/changes").json()["changes"])
    found = read(client, exported).json()
    assert found == {"values": then, "refused": {}}
    assert present(looked_after) == now and len(client.get("/admin/changes").json()["changes"]) == changes
    change(client, looked_after, {name: value for name, value in found["values"].items() if value != now[name]})
    assert present(looked_after) == then


BAD = {
    "max_num_seqs": "max_num_seqs: Input should be less than or equal to 512",
    "dtype": "dtype: Input should be 'auto', 'float32', 'bfloat16' or 'float16'",
    "port": "port cannot be changed while the studio runs.",
    "admin_password": "admin_password cannot be changed while the studio runs.",
}


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        (
            'top_p = 0.5\nmax_num_seqs = 4096\ndtype = "int3"\nport = 1\nadmin_password = "hush"\nquue_size = 2\n',
            {"quue_size": "Unknown setting quue_size. Did you mean queue_size?"},
        ),
        (
            "# mine\n\nSTUDIO_TOP_P=0.5\nSTUDIO_MAX_NUM_SEQS=4096\nSTUDIO_DTYPE=int3\nSTUDIO_PORT=1\n"
            "STUDIO_ADMIN_PASSWORD=hush\nSTUDIO_QUUE_SIZE=2\nHF_HOME=/x\n",
            {
                "STUDIO_QUUE_SIZE": "Unknown setting STUDIO_QUUE_SIZE. Did you mean STUDIO_QUEUE_SIZE?",
                "HF_HOME": "Unknown setting HF_HOME. `python app.py --help` lists all.",
            },
        ),
    ],
)
def test_what_cannot_be_taken_is_told_by_name_and_keeps_nothing_else_back(
    looked_after: Service, text: str, unknown: dict[str, str]
) -> None:
    reply = read(enter(looked_after), text)
    assert reply.json() == {"values": {"top_p": 0.5}, "refused": BAD | unknown} and "hush" not in reply.text


def test_names_that_only_the_command_line_knows_are_told_in_the_language_of_the_page(looked_after: Service) -> None:
    found = read(enter(looked_after), "port = 1", "zh-CN").json()
    assert found["refused"] == {"port": "工作室运行时不能更改 port。"}


def test_values_that_do_not_go_together_are_read_and_refused_when_they_are_applied(looked_after: Service) -> None:
    client = enter(looked_after)
    together = {"max_num_seqs": 200, "max_num_batched_tokens": 100}
    found = read(client, "max_num_seqs = 200\nmax_num_batched_tokens = 100").json()
    assert found == {"values": together, "refused": {}}
    for path in ("/admin/preview", "/admin/apply"):
        reply = client.post(path, json={"changes": found["values"]})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "max_num_batched_tokens")
    assert looked_after.worker.restarted == []


NO_SETTINGS = {
    "max_running = ": "Invalid value",
    "max_running = 1\nmax_running = 2": "Cannot overwrite a value",
    "STUDIO_MAX_RUNNING=3\nmax_running": "no = in line 2",
    "\x7fELF": "Invalid statement",
    "max_running = " + 5000 * "[": "",
}


@pytest.mark.parametrize(("text", "reason"), NO_SETTINGS.items(), ids=range(len(NO_SETTINGS)))
def test_file_of_another_form_is_refused_as_a_whole(looked_after: Service, text: str, reason: str) -> None:
    reply = read(enter(looked_after), text)
    assert reply.status_code == 400, reply.text
    told = reply.json()["error"]["message"]
    assert told.startswith("This is no file of settings") and reason in told


def test_empty_file_holds_nothing_and_a_huge_one_is_not_read(looked_after: Service) -> None:
    client = enter(looked_after)
    assert read(client, "").json() == {"values": {}, "refused": {}}
    assert read(client, "#" * 100_001).status_code == 400
    assert client.post("/admin/import", content=rb'{"text": "\"\ud800\" = 1"}').status_code == 400


def test_who_has_not_entered_is_answered_nothing_about_a_file(looked_after: Service) -> None:
    reply = httpx.post(f"{looked_after.url}/admin/import", json={"text": "max_running = 1"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (401, "admin_only")
