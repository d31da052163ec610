"""A hub on this machine that speaks both hubs' protocols, with faults by script: what it does wrong is asked for."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

REPOSITORY = "FunAudioLLM/CosyVoice2-0.5B"
COMMIT = "c0ffee" * 6 + "abcd"
LARGE_BYTES = 1000
"""Longer files are kept as LFS does it: behind a redirect, with a sha256."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one reply: another status, a connection cut after so many bytes, other content ..."""

    status: int = 0
    cut_after: int | None = None
    ignores_range: bool = False
    flips_a_bit: bool = False
    too_long: bool = False
    retry_after: str = ""
    waits_for: threading.Event | None = None


@dataclass
class Hub:
    """Files of one repository, the faults to come for each, and what was asked."""

    files: dict[str, bytes]
    url: str = ""
    faults: dict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(path of the file, or "listing"; the Range header)"""

    def ranges(self, path: str) -> list[str]:
        return [wanted for name, wanted in self.asked if name == path]

    def huggingface_listing(self) -> dict[str, object]:
        siblings = []
        for path, content in self.files.items():
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            entry: dict[str, object] = {"rfilename": path, "size": len(content), "blobId": blob}
            if len(content) > LARGE_BYTES:
                sha256 = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 134}
            siblings.append(entry)
        return {"id": REPOSITORY, "sha": COMMIT, "siblings": siblings}

    def modelscope_listing(self) -> dict[str, object]:
        files: list[dict[str, object]] = [{"Path": "CosyVoice-BlankEN", "Type": "tree", "Size": 0}]
        for path, content in self.files.items():
            sha256 = hashlib.sha256(content).hexdigest()
            files.append({"Path": path, "Type": "blob", "Size": len(content), "Sha256": sha256})
        return {"Code": 200, "Data": {"Files": files}}


@contextmanager
def running(files: dict[str, bytes]) -> Iterator[Hub]:
    """A hub at its `url`, gone at the end."""
    hub = Hub(files)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(hub))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler_of(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            path, query = unquote(address.path), parse_qs(address.query)
            if path == f"/api/models/{REPOSITORY}/revision/main" and query.get("blobs") == ["true"]:
                self.listing(hub.huggingface_listing())
            elif path == f"/api/v1/models/{REPOSITORY}/repo/files" and query["Revision"] == ["master"]:
                self.listing(hub.modelscope_listing())
            elif path == f"/api/v1/models/{REPOSITORY}/repo":
                self.file(query["FilePath"][0])
            elif path.startswith(prefix := f"/{REPOSITORY}/resolve/{COMMIT}/"):
                name = path.removeprefix(prefix)
                if len(hub.files[name]) > LARGE_BYTES:
                    self.send({"Location": f"{hub.url}/cdn/{name}"}, status=302)
                else:
                    self.file(name)
            elif path.startswith("/cdn/"):
                self.file(path.removeprefix("/cdn/"))
            else:
                self.send({}, status=404)

        def listing(self, body: dict[str, object]) -> None:
            hub.asked.append(("listing", ""))
            fault = self.next_fault("listing")
            self.send({}, b"" if fault.status else json.dumps(body).encode(), fault.status or 200)

        def file(self, name: str) -> None:
            wanted, content = self.headers.get("Range", ""), hub.files[name]
            hub.asked.append((name, wanted))
            fault = self.next_fault(name)
            if fault.waits_for is not None:
                fault.waits_for.wait(600)
            if fault.status:
                self.send({"Retry-After": fault.retry_after} if fault.retry_after else {}, status=fault.status)
                return
            if fault.flips_a_bit:
                content = bytes([content[0] ^ 1]) + content[1:]
            headers, status = {}, 200
            if wanted and not fault.ignores_range:
                first = int(wanted.removeprefix("bytes=").rstrip("-"))
                headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
                content, status = content[first:], 206
            if fault.too_long:
                content += b"more"
            self.send(headers, content, status, fault.cut_after)

        def next_fault(self, name: str) -> Fault:
            return hub.faults[name].pop(0) if hub.faults[name] else Fault()

        def send(
            self, headers: dict[str, str], body: bytes = b"", status: int = 200, cut_after: int | None = None
        ) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body[:cut_after])
            if cut_after is not None:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            return None

    return Handler
