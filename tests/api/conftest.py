"""The HTTP service on the scripted engine, over a real socket: streaming and leaving cannot be tested in process."""

from __future__ import annotations

import asyncio
import io
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
import uvicorn
from fastapi import FastAPI

from studio.admin.fitting import WeightBytes
from studio.admin.office import Office, open_office
from studio.admin.planner import LmSizes
from studio.api.web import build_web
from studio.backends.fake import (
    FakePromptEncoder,
    ScriptedEars,
    ScriptedSpeechLM,
    SineToken2Wav,
    voice_prompt,
)
from studio.engine.engine import Engine, EngineLimits
from studio.engine.worker import WorkerState
from studio.errors import EngineNotReady, InvalidRequest, StudioError
from studio.library.prompts import VoicePrompts
from studio.library.store import VoiceStore
from studio.registry.loaded import Loaded
from studio.registry.models import Models
from studio.settings import Settings, load
from studio.speech import Segment, ServedModel, SynthesisRequest, VoicePrompt
from studio.text import normalize, pauses


class WordFrontend:
    """Every word an id; refuses as the real one does, so that the edge can be tested without a checkpoint.

    The one number that it reads is 3, in Mandarin and English.
    """

    limit = 200

    def __init__(self, three: str = "3") -> None:
        self._three = three

    def reading(self, language: str) -> WordFrontend:
        return WordFrontend({"zh": "三", "en": "three"}.get(language, "3"))

    def check(self, text: str) -> None:
        if not text.strip():
            raise InvalidRequest("text.empty", param="input")
        if len(text) > self.limit:
            raise InvalidRequest("text.too_long", param="input", characters=len(text), limit=self.limit)
        if normalize.only_marks(text):
            raise InvalidRequest("text.only_marks", param="input")

    def segments(self, text: str) -> tuple[Segment, ...]:
        self.check(text)
        parts = [part for part in pauses.parts(text) if part.text.strip()]
        read = [(part.text.replace("3", self._three), part.pause_s) for part in parts]
        return tuple(Segment(text, tuple(range(len(text.split()))), pause_s) for text, pause_s in read)

    def prompt_ids(self, request: SynthesisRequest) -> tuple[int, ...]:
        texts = {"zero_shot": request.voice.prompt_text, "instruct": request.instructions}
        return tuple(range(len(texts.get(request.mode, "").split())))

    def lead(self, prompt_ids: Sequence[int]) -> int:
        return 0

    def word_ids(self, words: str) -> tuple[int, ...]:
        return tuple(range(len(words.split())))

    def warm(self) -> None:
        return None


NO_WEIGHTS = WeightBytes(0, 0)
NO_ROOM = "no room for the KV cache"


class ScriptedWorker:
    """A worker whose phase the test sets."""

    def __init__(self, name: str) -> None:
        self.state = WorkerState(name, "ready", "stage.ready", 1.0)
        self._observers: list[Callable[[WorkerState], None]] = []
        self.restarted: list[dict[str, object]] = []
        self.refuses: Callable[[dict[str, object]], bool] = lambda settings: False

    async def start(self) -> None:
        return None

    def subscribe(self, observer: Callable[[WorkerState], None]) -> None:
        self._observers.append(observer)
        observer(self.state)

    def expected_ready_s(self) -> float:
        return 0.0 if self.state.phase == "ready" else 12.0

    async def restart(self, settings: dict[str, object]) -> None:
        self.restarted.append(settings)
        self.to("starting", "stage.waiting")
        if self.refuses(settings):
            self.to("failed", "stage.failed", NO_ROOM)
        else:
            self.to("ready", "stage.ready")

    async def wait_started(self) -> WorkerState:
        if self.state.phase != "ready":
            raise EngineNotReady("engine.failed", reason=NO_ROOM)
        return self.state

    def reports(self, **facts: object) -> None:
        """Facts as of a start; gone with the next phase."""
        self.state = replace(self.state, facts=facts)

    def to(self, phase: str, stage: str, reason: str = "") -> None:
        self.state = WorkerState(self.state.name, phase, stage, 0.4, reason=reason)  # type: ignore[arg-type]
        for observer in self._observers:
            observer(self.state)


class WallClock:
    """Unix time that tests may put forward. stands_at_s: where only a test moves it."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self.stands_at_s: float | None = None

    def __call__(self) -> float:
        return (time.time() if self.stands_at_s is None else self.stands_at_s) + self.ahead_s

    def stand(self) -> None:
        """No time passes from now on but what the test lets pass, until the service forgets."""
        self.stands_at_s = time.time()


@dataclass
class FakeModel:
    """A model on scripts, and what is behind it."""

    loaded: Loaded
    lm: ScriptedSpeechLM
    token2wav: SineToken2Wav
    worker: ScriptedWorker
    encoder: FakePromptEncoder


@dataclass
class FakeLoader:
    """Gives a scripted model for every name. of: the last one that each name got; settings: with which."""

    store: VoiceStore
    limits: EngineLimits
    of: dict[str, FakeModel] = field(default_factory=dict)
    settings: dict[str, Settings] = field(default_factory=dict)
    refuses: StudioError | None = None
    """Why no model can be loaded now."""
    phase: str = "ready"
    """In which the speech LM of the next one is found."""
    gate: threading.Event = field(default_factory=threading.Event)
    """Holds loading back while it is cleared."""

    def __post_init__(self) -> None:
        self.gate.set()

    def __call__(self, name: str, folder: Path, settings: Settings) -> Loaded:
        self.gate.wait(120)
        if self.refuses is not None:
            raise self.refuses
        lm, token2wav, worker = ScriptedSpeechLM(), SineToken2Wav(), ScriptedWorker("lm")
        worker.to(self.phase, "stage.ready")
        engine = Engine(lm, token2wav, WordFrontend(), self.limits, workers=(worker,))
        encoder, model = FakePromptEncoder(), ServedModel(name)
        prompts = VoicePrompts(self.store, encoder, settings.folder("prompts"), f"fake {name}", model=name)
        workers = {"lm": worker, "token2wav": ScriptedWorker("token2wav")}
        loaded = Loaded(model, engine, prompts, workers, model.sampling)
        self.of[name], self.settings[name] = FakeModel(loaded, lm, token2wav, worker, encoder), settings
        return loaded


@dataclass
class Service:
    """A running service and what is behind it: of the default model, unless `loader` is asked for another."""

    url: str
    app: FastAPI
    loader: FakeLoader
    store: VoiceStore
    loop: asyncio.AbstractEventLoop = field(repr=False)
    clock: WallClock
    office: Office
    ears: ScriptedEars

    def __post_init__(self) -> None:
        default = self.loader.of["fake-model"]
        self.engine, self.lm, self.token2wav = default.loaded.engine, default.lm, default.token2wav
        self.worker, self.encoder = default.worker, default.encoder

    def in_loop(self, function: Callable[[], object]) -> None:
        """Run in the service's event loop and wait for it."""

        async def run() -> None:
            function()

        asyncio.run_coroutine_threadsafe(run(), self.loop).result(120)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait, in the service's loop, for a condition; the test's own timeout ends a wait that is in vain."""

        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(wait(), self.loop).result(120)

    @contextmanager
    def in_one_thread(self) -> Iterator[None]:
        """Meanwhile what the service gives to threads is done in the order in which it is given."""
        with ThreadPoolExecutor(1) as pool:
            self.in_loop(lambda: self.loop.set_default_executor(pool))
            try:
                yield
            finally:
                self.in_loop(lambda: self.loop.set_default_executor(ThreadPoolExecutor()))

    def forget(self) -> None:
        """Back to the state after a start, but for the metrics."""
        self.clock.stands_at_s = None
        self.worker.to("ready", "stage.ready")
        self.lm.prompts.clear()
        self.lm.samplings.clear()
        self.lm.ended.clear()
        self.lm._scripts.clear()
        self.ears.forget()
        for voice in [*self.store.all(), *self.store.discarded()]:
            self.store.delete(voice.id)
        self.store.add(clip_samples(), 24000, "hello there", name="Ada")

    def is_idle(self) -> bool:
        state = self.engine.state()
        return (state.running, state.waiting) == (0, 0) and not self.lm._running and not self.token2wav._rows


Start = Callable[..., Service]


def serve(
    folder: Path,
    running: list[tuple[uvicorn.Server, threading.Thread]],
    *flags: str,
    limits: EngineLimits | None = None,
    weights: WeightBytes = NO_WEIGHTS,
) -> Service:
    """Start a service in a thread of its own and wait until it answers."""
    settings = load(["--data-dir", str(folder), *flags], {})
    store = VoiceStore(settings.folder("library"), settings.max_voices)
    loader = FakeLoader(store, limits or EngineLimits())
    default = loader("fake-model", folder, settings)
    models = Models(default, str(folder), settings.further_models())
    ears, clock = ScriptedEars(), WallClock()

    async def voice() -> VoicePrompt:
        return voice_prompt("tester")

    office = open_office(models, settings, LmSizes(8, 2, 64, 0, 20000), voice, loader, weights)
    app = build_web(models, store, settings, ears, clock, office)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        await server.serve(sockets=[listener])

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    running.append((server, thread))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    # The socket listens already, so this waits in its backlog until the service answers.
    httpx.get(f"{url}/health", timeout=120)
    return Service(url, app, loader, store, loops[0], clock, office, ears)


def stop(running: list[tuple[uvicorn.Server, threading.Thread]]) -> None:
    for server, thread in running:
        server.should_exit = True
        thread.join(120)


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[Start]:
    """Services of the test's own, with its own flags and limits."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []
    yield lambda *flags, **how: serve(tmp_path, running, *flags, **how)
    stop(running)


@pytest.fixture(scope="session")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running: list[tuple[uvicorn.Server, threading.Thread]] = []
    yield serve(tmp_path_factory.mktemp("service"), running)
    stop(running)


@pytest.fixture
def service(shared_service: Service) -> Service:
    """The shared service as if it had just started, with one voice, Ada."""
    shared_service.until(shared_service.is_idle)
    shared_service.in_loop(shared_service.forget)
    return shared_service


def clip_samples(seconds: float = 4.0, rate_hz: int = 24000) -> np.ndarray:
    """A tone that swells and pauses like speech, float32."""
    time = np.arange(int(seconds * rate_hz)) / rate_hz
    return (0.5 * np.sin(2 * np.pi * 180 * time) * np.abs(np.sin(np.pi * 1.5 * time))).astype(np.float32)


def clip_bytes(seconds: float = 4.0, rate_hz: int = 24000, audio_format: str = "WAV", **how: str) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, clip_samples(seconds, rate_hz), rate_hz, format=audio_format, **how)
    return buffer.getvalue()
