"""The studio on scripted models, in a process that tests may kill: `python -m tests.fake_studio FOLDER PORT`."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import httpx
import uvicorn

from tests.real_studio import POLL_S, ROOT, START_S, held_port, port_of, tiny_whisper

VOICES = ("Ada", "Bob")


def app_on_fakes(folder: Path) -> object:
    """The whole application on fakes, with two voices in its library and ears that really hear."""
    from studio.api.web import build_web
    from studio.backends.fake import (
        FakePromptEncoder,
        ScriptedSpeechLM,
        SineToken2Wav,
        WordFrontend,
        sine,
    )
    from studio.engine.ears_client import EarsClient
    from studio.engine.engine import Engine
    from studio.engine.worker import WorkerProcess
    from studio.library.prompts import VoicePrompts
    from studio.library.store import VoiceStore
    from studio.registry.loaded import Loaded
    from studio.registry.models import Models
    from studio.settings import load
    from studio.speech import ServedModel

    settings = load(["--data-dir", str(folder), "--asr-model", tiny_whisper(), "--asr-threads", "1"], {})
    ears = WorkerProcess([sys.executable, "-m", "studio.backends.ears"], "ears", settings.for_worker())
    engine = Engine(ScriptedSpeechLM(), SineToken2Wav(), WordFrontend())
    store = VoiceStore(settings.folder("library"), settings.max_voices)
    known = {voice.name for voice in store.all()}
    for number, name in enumerate(VOICES):
        if name not in known:
            store.add(sine(200.0 + 150 * number, 0, 4 * 24_000), 24_000, "hello there", name=name)
    prompts = VoicePrompts(store, FakePromptEncoder(), settings.folder("prompts"), "fake")
    model = ServedModel("fake-model")
    models = Models(Loaded(model, engine, prompts, {}, model.sampling))
    return build_web(models, store, settings, EarsClient(ears, settings.asr_model))


class FakeStudio:
    """That process; killed and started again it has the same folder and address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._place = held_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{port_of(self._place)}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [sys.executable, "-m", "tests.fake_studio", str(self._folder), str(port_of(self._place))]
        with (self._folder / "fake.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise AssertionError((self._folder / "fake.log").read_text()[-3000:])
            time.sleep(POLL_S)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=30).status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(120)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(120)
            except subprocess.TimeoutExpired:
                self.kill()


if __name__ == "__main__":
    uvicorn.run(app_on_fakes(Path(sys.argv[1])), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")  # type: ignore[arg-type]
