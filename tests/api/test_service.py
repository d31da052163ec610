"""Models, health, metrics, keys and everything a stray client may ask."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.api.conftest import clip_samples


def test_models_lists_what_is_served(service) -> None:
    listed = httpx.get(f"{service.url}/v1/models").json()
    assert listed["object"] == "list" and [m["id"] for m in listed["data"]] == ["fake-model"]


def test_health_is_200_when_speech_can_be_made(service) -> None:
    reply = httpx.get(f"{service.url}/health")
    assert (reply.status_code, reply.json()["status"]) == (200, "ok")


def test_health_says_when_a_seed_holds_as_the_speech_lm_reports_it(service) -> None:
    assert httpx.get(f"{service.url}/health").json()["seed_holds"] is None
    for holds in ("alone", "beside_others"):
        service.in_loop(lambda holds=holds: service.worker.reports(seed_holds=holds))
        assert httpx.get(f"{service.url}/health").json()["seed_holds"] == holds


def test_metrics_count_what_happened(start_service) -> None:
    service = start_service()
    service.store.add(clip_samples(), 24000, "hello there", name="Ada")
    httpx.post(
        f"{service.url}/v1/audio/speech",
        json={"input": "one two three", "voice": "Ada", "response_format": "pcm"},
    )
    httpx.post(f"{service.url}/player/report", json={"underruns": 2, "first_sound_ms": 300, "played_ms": 600})
    service.until(service.is_idle)
    found = {
        s.name: s.value
        for f in text_string_to_metric_families(httpx.get(f"{service.url}/metrics").text)
        for s in f.samples
    }
    assert found["studio_requests_finished_total"] == 1
    assert found["studio_stream_underruns_total"] == 2
    assert abs(found["studio_audio_seconds_total"] - 15 * 960 / 24000) < 1e-9


def test_player_report_out_of_range_is_refused(service) -> None:
    assert (
        httpx.post(
            f"{service.url}/player/report", json={"underruns": 10**9, "first_sound_ms": 0, "played_ms": 0}
        ).status_code
        == 400
    )


def test_other_sites_get_no_cors_leave(service) -> None:
    reply = httpx.get(f"{service.url}/v1/models", headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in reply.headers


def test_page_and_its_files_are_served(service) -> None:
    assert "<html" in httpx.get(f"{service.url}/").text
    for path in ("web/studio.js", "web/worklet.js", "web/messages/zh.json", "favicon.ico"):
        assert httpx.get(f"{service.url}/{path}").status_code == 200, path


def test_files_beside_the_page_are_out_of_reach(service) -> None:
    for path in (
        "web/../../app.py",
        "web/%2e%2e/%2e%2e/app.py",
        "gradio_api/file=/etc/passwd",
        "gradio_api/file=app.py",
    ):
        assert httpx.get(f"{service.url}/{path}").status_code in (403, 404), path


def test_no_address_is_fetched_for_anybody(service) -> None:
    for path in ("file=https://example.com/", "file=http:/example.com", "file=%68ttps://example.com/", "file/https://a.b"):
        assert httpx.get(f"{service.url}/gradio_api/{path}").json()["error"]["code"] == "not_found", path
    assert httpx.head(f"{service.url}/gradio_api/file=https://example.com/").status_code == 404


def test_stray_route_is_told_in_the_envelope(service) -> None:
    for reply in (httpx.put(f"{service.url}/v1/audio/voices"), httpx.get(f"{service.url}/v1/nonsense")):
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
