"""Debian's Prometheus on a studio that speaks: every query of the dashboard and of the alerts finds data."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import yaml

from tests.api.conftest import Service
from tests.real_studio import held_port, port_of

MONITORING = Path(__file__).resolve().parents[2] / "assets" / "monitoring"
WAIT_S = 120.0
BOUND = re.compile(r" [<>] [\d.]+$")


def dashboard_queries() -> list[str]:
    panels = json.loads((MONITORING / "grafana" / "studio.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def alert_figures() -> list[str]:
    """The expressions without the bound that they must not pass."""
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"][0]["rules"]
    assert all(BOUND.search(rule["expr"]) for rule in rules)
    return [BOUND.sub("", rule["expr"]) for rule in rules]


@pytest.fixture(scope="module")
def spoken(shared_service: Service) -> Iterator[Service]:
    """A service that has spoken, and whose steps tell what took their time."""
    token2wav = shared_service.token2wav
    shared_service.in_loop(shared_service.forget)
    token2wav.flow_s, token2wav.vocoder_s = 0.03, 0.01
    speak(shared_service)
    yield shared_service
    token2wav.flow_s = token2wav.vocoder_s = 0.0


def speak(service: Service) -> None:
    body = {"input": "one two three", "voice": "Ada", "response_format": "pcm"}
    httpx.post(f"{service.url}/v1/audio/speech", json=body, timeout=120).raise_for_status()


@pytest.fixture(scope="module")
def prometheus(spoken: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Our configuration with the address of the service, scraped every second; gives its address."""
    folder = tmp_path_factory.mktemp("prometheus")
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    config["global"] = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), "1s")
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [spoken.url.removeprefix("http://")]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    (folder / "alerts.yml").write_bytes((MONITORING / "alerts.yml").read_bytes())
    place = held_port()
    port = port_of(place)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(address, process)
        yield address
    finally:
        process.terminate()
        process.wait(120)
        place.close()


def wait_until_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    """Returns once Prometheus answers queries: it listens, and says 503, while it opens its storage."""
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        assert process.poll() is None, "Prometheus ended"
        try:
            if httpx.get(f"{address}/-/ready", timeout=WAIT_S).is_success:
                return
        except httpx.TransportError:
            pass  # it does not listen yet
        time.sleep(0.05)
    raise AssertionError(f"Prometheus is not ready after {WAIT_S:.0f} s")


def found(prometheus: str, query: str) -> list[dict[str, object]]:
    """What a query gives once there is something."""
    end_s = time.monotonic() + WAIT_S
    result: list[dict[str, object]] = []
    while not result and time.monotonic() < end_s:
        reply = httpx.get(f"{prometheus}/api/v1/query", params={"query": query}, timeout=WAIT_S).raise_for_status()
        result = reply.json()["data"]["result"]
        time.sleep(0 if result else 0.05)  # the service that is scraped runs in this process
    return result


def test_configuration_and_rules_are_valid() -> None:
    for command in (("config", "prometheus.yml"), ("rules", "alerts.yml")):
        checked = subprocess.run(
            ["promtool", "check", command[0], str(MONITORING / command[1])], capture_output=True, text=True
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_query_of_the_dashboard_finds_data(prometheus: str) -> None:
    queries = dashboard_queries()
    assert len(queries) >= 15
    assert not [query for query in queries if not found(prometheus, query)]


def test_every_figure_of_the_alerts_is_there_and_none_fires(prometheus: str) -> None:
    for figure in alert_figures():
        assert found(prometheus, figure), figure
    firing = httpx.get(f"{prometheus}/api/v1/alerts").json()["data"]["alerts"]
    assert not [alert for alert in firing if alert["state"] == "firing"]


def test_scraped_figures_are_the_services_own(prometheus: str, spoken: Service) -> None:
    speak(spoken)
    spoken.until(spoken.is_idle)
    own = next(
        float(line.split()[-1])
        for line in httpx.get(f"{spoken.url}/metrics").text.splitlines()
        if line.startswith("studio_audio_seconds_total{")
    )
    query = f"studio_audio_seconds_total == {own}"
    assert found(prometheus, query), f"the service says {own}"


def test_totals_under_load_are_the_page_s_once_it_is_idle(prometheus: str, spoken: Service) -> None:
    """Figures that only grow: once nobody speaks, the last scrape and the Admin tab's view say the same."""
    with ThreadPoolExecutor(6) as listeners:
        list(listeners.map(lambda _: speak(spoken), range(18)))
    spoken.until(spoken.is_idle)
    monitor = spoken.office.monitor
    asyncio.run_coroutine_threadsafe(monitor.sample(), spoken.loop).result(120)
    page = json.loads(monitor.live)  # the bytes that every page gets
    rows, flow, vocoder = (f"studio_token2wav_{name}" for name in ("batch_rows", "flow_seconds", "vocoder_seconds"))
    for query, figure in (
        ("sum(studio_requests_finished_total)", sum(page["finished"].values())),
        ("studio_requests_refused_total", page["refused"]),
        ("studio_stream_underruns_total", page["underruns"]),
        ("studio_speech_tokens_total", page["lm"]["generated_tokens"]),
        ("vllm:generation_tokens_total", page["lm"]["generated_tokens"]),
        ("studio_requests_running + studio_requests_waiting", 0),
        (f"{rows}_sum / {rows}_count", page["batch_rows"]),
        (f"{flow}_sum / {flow}_count", page["flow_s"]),
        (f"{vocoder}_sum / {vocoder}_count", page["vocoder_s"]),
    ):
        assert found(prometheus, f"{query} == {figure!r}"), query
    assert page["finished"]["stop"] >= 18


def test_compose_mounts_what_is_there() -> None:
    root = MONITORING.parents[1]
    compose = yaml.safe_load((root / "docker-compose.yml").read_text())
    mounted = [
        volume.split(":")[0] for name in ("prometheus", "grafana") for volume in compose["services"][name]["volumes"]
    ]
    assert all((root / place).exists() for place in mounted if place.startswith("./"))
    for studio in ("studio-cpu", "studio-gpu"):
        assert "studio" in compose["services"][studio]["networks"]["default"]["aliases"]
