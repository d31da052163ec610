"""Bodies that are too large are refused before they are read, whether or not they say how large they are."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest

MEGABYTE = 1_000_000


def unannounced(size_bytes: int) -> Iterator[bytes]:
    for _ in range(size_bytes // 50_000):
        yield b" " * 50_000


@pytest.mark.parametrize("path", ["v1/audio/speech", "player/report", "gradio_api/queue/join", "v1/models"])
@pytest.mark.parametrize("announced", [True, False])
def test_body_over_a_megabyte_is_413(service, path: str, announced: bool) -> None:
    content = b" " * (2 * MEGABYTE) if announced else unannounced(2 * MEGABYTE)
    headers = {"Content-Type": "application/json"}
    reply = httpx.post(f"{service.url}/{path}", content=content, headers=headers, timeout=120)
    if path == "v1/models" and not announced:
        assert reply.status_code == 404  # nothing there reads a body
        return
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "request_too_large")
    assert service.is_idle()


def test_announced_size_is_refused_before_a_byte_of_it_comes(service) -> None:
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=120) as line:
        line.sendall(b"POST /v1/audio/voices HTTP/1.1\r\nHost: x\r\nContent-Length: 99000000\r\n\r\n")
        assert line.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("announced", [True, False])
def test_upload_may_be_a_clip_and_its_fields_but_no_more(start_service, announced: bool) -> None:
    service = start_service("--max-clip-mb", "1")
    head = b'--X\r\nContent-Disposition: form-data; name="audio_sample"; filename="c"\r\n\r\n'

    def upload(size_bytes: int) -> httpx.Response:
        def parts() -> Iterator[bytes]:
            yield head
            yield from unannounced(size_bytes)
            yield b"\r\n--X--\r\n"

        content = b"".join(parts()) if announced else parts()
        headers = {"Content-Type": "multipart/form-data; boundary=X"}
        return httpx.post(f"{service.url}/v1/audio/voices", content=content, headers=headers, timeout=120)

    within, over = upload(MEGABYTE), upload(3 * MEGABYTE)
    assert within.json()["error"]["param"] == "ref_text"  # it was read
    assert (over.status_code, over.json()["error"]["code"]) == (413, "clip_too_large")
