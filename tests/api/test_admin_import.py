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
