"""Who gets in: the key and the page's cookie, and other sites that try to ride along."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from studio.api.guard import SESSION_COOKIE

BEARER = {"Authorization": "Bearer secret"}
CLOSED = (
    "",
    "config",
    "gradio_api/info",
    "gradio_api/startup-events",
    "theme.css",
    "docs",
    "openapi.json",
    "v1/models",
    "v1/audio/voices",
    "v1/nonsense",
)
OPEN = ("health", "metrics", "favicon.ico", "web/studio.js", "web/messages/zh.json")


@contextmanager
def browser(service) -> Iterator[httpx.Client]:
    """A browser that has opened the page with the key."""
    with httpx.Client(base_url=service.url) as client:
        client.get("/?key=secret")
        yield client


@pytest.fixture
def locked(start_service):
    return start_service("--api-key", "secret")


def test_without_the_key_only_figures_and_static_files_are_open(locked) -> None:
    for path in CLOSED:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": f"{SESSION_COOKIE}=abc.def"}):
            reply = httpx.get(f"{locked.url}/{path}", headers=headers)
            assert reply.status_code == 401 and "set-cookie" not in reply.headers, path
    for path in ("gradio_api/queue/join", "gradio_api/upload", "player/report", "v1/audio/speech"):
        reply = httpx.post(f"{locked.url}/{path}", json={})
        assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key"), path
    for path in OPEN:
        assert httpx.get(f"{locked.url}/{path}").status_code == 200, path


SOCKET = "SOCKET"
WHOLE_FOLDERS = ("/web", "/listen/")
"""Static files; and the raters' pages, whose addresses hold a token of their own."""


def every_route(routes: Iterable[BaseRoute], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Method and path of each route of ours and of Gradio's, whose application is mounted among them; SOCKET for those
    of WebSockets."""
    for route in routes:
        path = prefix + getattr(route, "path", "")
        if isinstance(route, Mount):
            yield from every_route(route.routes, path)
            yield "GET", f"{path}/x"
        elif isinstance(route, Route):
            yield from ((method, path) for method in sorted(route.methods or ()))
        elif isinstance(route, WebSocketRoute):
            yield SOCKET, path


def test_every_route_of_ours_and_of_gradio_refuses_who_has_no_key(locked) -> None:
    found = {(method, re.sub("{[^}]+}", "x", path)) for method, path in every_route(locked.app.routes)}
    gradio = {"/gradio_api/queue/join", "/gradio_api/queue/data", "/gradio_api/upload", "/gradio_api/run/x", "/config"}
    assert gradio | {"/v1/audio/speech", "/v1/x", "/admin/live"} <= {path for _, path in found}
    closed = [(m, p) for m, p in sorted(found) if m != SOCKET and p[1:] not in OPEN and not p.startswith(WHOLE_FOLDERS)]
    with httpx.Client(base_url=locked.url) as client:
        for method, path in closed:
            reply = client.request(method, path or "/", json={} if method in ("POST", "PUT", "PATCH") else None)
            assert reply.status_code == 401 and "set-cookie" not in reply.headers, (method, path)


def test_every_socket_refuses_who_has_no_key_and_who_comes_from_another_site(locked) -> None:
    sockets = {re.sub("{[^}]+}", "x", path) for method, path in every_route(locked.app.routes) if method == SOCKET}
    assert {"/v1/audio/speech/stream", "/v1/jobs/x/audio"} <= sockets
    with browser(locked) as client:
        cookie = f"{SESSION_COOKIE}={client.cookies[SESSION_COOKIE]}"
    cases = [({}, 401), ({"Authorization": "Bearer wrong"}, 401), ({"Cookie": f"{SESSION_COOKIE}=abc.def"}, 401)]
    cases += [({"Cookie": cookie, **foreign}, 403) for foreign in FOREIGN]
    for path in sorted(sockets):
        for headers, status in cases:
            with pytest.raises(InvalidStatus) as refused:
                connect(locked.url.replace("http", "ws") + path, additional_headers=headers, open_timeout=120).close()
            assert refused.value.response.status_code == status, (path, headers)


def test_bearer_of_the_key_passes_and_gets_the_page_with_a_cookie(locked) -> None:
    assert httpx.get(f"{locked.url}/v1/audio/voices", headers=BEARER).status_code == 200
    page = httpx.get(f"{locked.url}/", headers=BEARER)
    assert page.status_code == 200 and SESSION_COOKIE in page.cookies


@pytest.mark.parametrize(("language", "sentence"), [("en", "asks for its API key"), ("zh", "需要 API 密钥")])
def test_page_says_how_to_give_the_key(locked, language: str, sentence: str) -> None:
    for path in ("", "?key=wrong"):
        reply = httpx.get(f"{locked.url}/{path}", headers={"Accept-Language": language})
        assert reply.status_code == 401 and sentence in reply.text and "wrong" not in reply.text


def test_address_with_the_key_leads_to_the_page_and_its_cookie_opens_all_of_it(locked) -> None:
    entered = httpx.get(f"{locked.url}/?key=secret")
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    with browser(locked) as client:
        assert client.get("/").status_code == 200
        assert client.get("/config").status_code == 200
        assert client.get("/v1/audio/voices").status_code == 200


def test_cookie_serves_no_other_site_but_a_link_to_the_page_works(locked) -> None:
    with browser(locked) as client:
        from_afar = {"Sec-Fetch-Site": "cross-site"}
        assert client.get("/v1/audio/voices", headers=from_afar).status_code == 401
        assert client.get("/", headers=from_afar).status_code == 200


def test_cookie_is_kept_while_it_is_valid_and_replaced_otherwise(service) -> None:
    with httpx.Client(base_url=service.url) as client:
        client.get("/")
        first = client.cookies[SESSION_COOKIE]
        assert "set-cookie" not in client.get("/").headers
    replaced = httpx.get(service.url, headers={"Cookie": f"{SESSION_COOKIE}=of-another.key"})
    assert replaced.cookies[SESSION_COOKIE] not in ("of-another.key", first)


def test_cookie_is_for_https_only_where_the_page_is_https(service) -> None:
    plain = httpx.get(service.url).headers["set-cookie"]
    behind_tls = httpx.get(service.url, headers={"X-Forwarded-Proto": "https"}).headers["set-cookie"]
    assert "HttpOnly" in plain and "Secure" not in plain and "; Secure" in behind_tls


FOREIGN = (
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:9999"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
)


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_other_sites_change_nothing_even_without_a_key(service, headers: dict[str, str]) -> None:
    for method, path in (
        ("DELETE", "v1/audio/voices/Ada"),
        ("POST", "v1/audio/voices"),
        ("POST", "v1/audio/speech"),
        ("POST", "gradio_api/queue/join"),
        ("POST", "player/report"),
    ):
        reply = httpx.request(method, f"{service.url}/{path}", headers=headers)
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "cross_site"), path
    assert [v.name for v in service.store.all()] == ["Ada"]


def test_own_page_and_programs_may_change_things(service) -> None:
    host = service.url.removeprefix("http://")
    for headers in (
        {},
        {"Origin": service.url},
        {"Origin": service.url, "Sec-Fetch-Site": "same-origin"},
        {"Origin": "https://voice.example", "X-Forwarded-Host": "voice.example"},
        {"Origin": "http://voice.example:8080", "Host": "voice.example"},
        {"Sec-Fetch-Site": "none", "Host": host},
    ):
        reply = httpx.post(
            f"{service.url}/player/report",
            json={"underruns": 0, "first_sound_ms": 1, "played_ms": 1},
            headers=headers,
        )
        assert reply.status_code == 200, headers


def test_allowed_origin_may_change_things_and_gets_cors_leave(start_service) -> None:
    service = start_service("--allowed-origins", "https://friend.example")
    for origin, status in (("https://friend.example", 200), ("https://evil.example", 403)):
        headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
        report = {"underruns": 0, "first_sound_ms": 1, "played_ms": 1}
        reply = httpx.post(f"{service.url}/player/report", json=report, headers=headers)
        assert reply.status_code == status
        assert ("access-control-allow-origin" in reply.headers) == (status == 200)


def test_fair_queue_knows_a_client_by_what_cannot_be_made_up() -> None:
    from fastapi import Request

    from studio.api.guard import Guard

    def client(guard: Guard, **headers: str) -> str:
        raw = [(k.encode(), v.encode()) for k, v in headers.items()]
        return guard.client_of(Request({"type": "http", "headers": raw, "client": ("10.0.0.1", 5)}))

    unlocked, locked = Guard("", ()), Guard("secret", ())
    address = client(unlocked)
    assert client(unlocked, authorization="Bearer made up") == address
    assert client(unlocked, cookie=f"{SESSION_COOKIE}=made.up") == address
    assert client(locked, authorization="Bearer made up") == address
    assert client(locked, authorization="Bearer secret") != address
    assert client(locked, cookie=f"{SESSION_COOKIE}={locked.new_session()}") != address
