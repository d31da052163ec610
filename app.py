"""CosyVoice Studio: settings, workers, engine, library, page; then serve. `python app.py --help` lists the settings."""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import partial
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from studio import heap
from studio.admin.fitting import WeightBytes
from studio.admin.office import limits_of, open_office
from studio.admin.planner import LmSizes
from studio.api import speech
from studio.api.arrival import Arrival
from studio.api.web import build_web
from studio.audio import loudness
from studio.audio.ffmpeg import ffmpeg_available
from studio.checkpoint import check_files, fingerprint, read_checkpoint
from studio.engine.ears_client import EarsClient
from studio.engine.engine import Engine
from studio.engine.lm_client import SpeechLMClient
from studio.engine.mps import gpu_sharing
from studio.engine.token2wav_client import PromptEncoderClient, Token2WavClient
from studio.engine.worker import Supervision, WorkerProcess
from studio.engine.worker_command import ALONE, Variables, worker_command, worker_variables
from studio.errors import CheckpointError, SettingsError
from studio.hub.download import Download
from studio.hub.listing import Repository
from studio.library.prompts import VoicePrompts
from studio.library.starters import add_starters, first_in_order
from studio.library.store import VoiceStore
from studio.messages import render
from studio.registry.loaded import Loaded
from studio.registry.models import Models
from studio.settings import Settings, exit_on_error
from studio.setup.registration import ensure_registered
from studio.speech import ServedModel, VoicePrompt
from studio.text.frontend import TextFrontend

ROOT = Path(__file__).resolve().parent
SWITCH_S = 0.0005
"""How long another thread keeps the interpreter while the event loop waits for it, each time it comes back from a
socket. With Python's own 5 ms a byte took 10 ms to come and go beside a thread that computes, with this less than 0.1,
and 3.4 at most."""


def load(name: str, folder: Path, settings: Settings, store: VoiceStore, shared: Variables) -> Loaded:
    """A checkpoint with workers of its own, which nothing has started yet; "": it has the name that it says itself.

    shared: what workers must know to share a GPU. Nothing heavy is imported here, the models live in the workers.
    Raises: CheckpointError.
    """
    checkpoint = read_checkpoint(folder)
    check_files(folder)
    supervision = Supervision(start_timeout_s=settings.start_timeout_s)
    values, device = settings.for_worker(), settings.found_device()
    lm_command = worker_command("vllm_lm", worker_variables("lm", values, device, shared))
    voicing = worker_command("torch_token2wav", worker_variables("token2wav", values, device, shared))
    lm_worker = worker_of(settings, "lm", lm_command, supervision)
    token2wav_worker = worker_of(settings, "token2wav", voicing, supervision)
    frontend = TextFrontend.load(
        checkpoint.tokenizer_folder,
        checkpoint.text_frontend,
        checkpoint.languages,
        settings.max_text_chars,
        checkpoint.sound_tags,
        checkpoint.version,
    )
    token2wav = Token2WavClient(token2wav_worker)
    engine = Engine(
        SpeechLMClient(lm_worker),
        token2wav,
        frontend,
        limits_of(settings),
        workers=(lm_worker, token2wav_worker),
        silent_tokens=checkpoint.silent_tokens,
    )
    model = ServedModel(
        name or checkpoint.id,
        settings.sampling(checkpoint.sampling),
        checkpoint.modes,
        checkpoint.sound_tags,
        checkpoint.languages,
        checkpoint.interleaved,
    )
    prompts = VoicePrompts(
        store,
        PromptEncoderClient(token2wav_worker),
        settings.folder("prompts"),
        fingerprint(checkpoint),
        prepare=engine.prepare,
        model=model.name,
    )
    workers = {"lm": lm_worker, "token2wav": token2wav_worker}
    return Loaded(model, engine, prompts, workers, checkpoint.sampling)


async def settle() -> None:
    """The start is over but for the models: load what a first sound and take wait for, then walk none of it again."""
    sys.setswitchinterval(SWITCH_S)
    await speech.warm()
    await asyncio.to_thread(loudness.warm)
    heap.settle()
    heap.collect_seldom()


def worker_of(
    settings: Settings, name: str, command: list[str], supervision: Supervision
) -> WorkerProcess:
    return WorkerProcess(command, name, settings.for_worker(), supervision=supervision)


def build(settings: Settings, shared: Variables = ALONE) -> FastAPI:
    """The whole studio. shared: see `load`. Raises CheckpointError."""
    store = VoiceStore(settings.folder("library"), settings.max_voices)
    folder = Path(settings.model_dir)
    default = load(settings.served_model_name, folder, settings, store, shared)
    try:
        models = Models(default, settings.model_dir, settings.further_models())
    except ValueError as error:
        raise CheckpointError("settings.models_twice", value=error) from error
    add_starters(store, ROOT / "assets" / "starters")
    default.engine.on_warm(settle)

    async def first_voice() -> VoicePrompt:
        return await default.prompts.of(first_in_order(store, "en"))

    checkpoint = read_checkpoint(folder)
    office = open_office(
        models,
        settings,
        LmSizes.of(checkpoint),
        first_voice,
        partial(load, store=store, shared=shared),
        WeightBytes.of(checkpoint),
    )
    supervision = Supervision(start_timeout_s=settings.start_timeout_s)
    ears_worker = worker_of(settings, "ears", worker_command("ears"), supervision)
    return build_web(models, store, settings, EarsClient(ears_worker, settings.asr_model), office=office)


def application(settings: Settings, shared: Variables) -> FastAPI | Arrival:
    """The studio; where the checkpoint must be fetched first, what answers until then. Raises CheckpointError."""
    repository = Repository.of(settings)
    if repository is None:
        return build(settings, shared)
    served = settings.served_model_name or repository.id.partition("/")[2]

    def build_on(folder: Path) -> FastAPI:
        here = settings.model_copy(update={"model_dir": str(folder), "served_model_name": served})
        return build(here, shared)

    return Arrival(Download(repository, settings.folder("cache") / "hub"), build_on)


def main(argv: list[str]) -> None:
    settings = exit_on_error(argv)
    ensure_registered(ROOT)  # vLLM finds our model through the installed package
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if not ffmpeg_available():
        logging.getLogger("studio").warning("%s", render("doctor.ffmpeg_missing"))
    cache, device = settings.folder("cache"), settings.found_device()
    try:
        with gpu_sharing(settings.gpu_sharing, cache, device) as shared:
            serve(application(settings, shared), settings)
    except (CheckpointError, SettingsError) as error:
        sys.exit(f"app.py: {error}")


def serve(app: FastAPI | Arrival, settings: Settings) -> None:
    """Answer until the process is told to end."""
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        root_path=settings.root_path,
        ssl_certfile=settings.ssl_certfile or None,
        ssl_keyfile=settings.ssl_keyfile or None,
        log_level="warning",
        timeout_graceful_shutdown=5,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
