"""CosyVoice Studio: settings, workers, engine, library, page; then serve. `python app.py --help` lists the settings."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from studio.admin.office import limits_of, open_office
from studio.admin.planner import LmSizes
from studio.api.arrival import Arrival
from studio.api.web import build_web
from studio.audio.ffmpeg import ffmpeg_available
from studio.checkpoint import check_files, fingerprint, read_checkpoint
from studio.engine.ears_client import EarsClient
from studio.engine.engine import Engine
from studio.engine.lm_client import SpeechLMClient
from studio.engine.token2wav_client import PromptEncoderClient, Token2WavClient
from studio.engine.worker import Supervision, WorkerProcess
from studio.errors import CheckpointError
from studio.hub.download import Download
from studio.hub.listing import Repository
from studio.library.prompts import VoicePrompts
from studio.library.starters import add_starters, first_in_order
from studio.library.store import VoiceStore
from studio.messages import render
from studio.settings import Settings, exit_on_error
from studio.setup.registration import ensure_registered
from studio.speech import ServedModel, VoicePrompt
from studio.text.frontend import TextFrontend

ROOT = Path(__file__).resolve().parent


def build(settings: Settings) -> FastAPI:
    """The whole studio; nothing heavy is imported here, the models live in the workers."""
    checkpoint = read_checkpoint(Path(settings.model_dir))
    check_files(checkpoint.folder)
    supervision = Supervision(start_timeout_s=settings.start_timeout_s)
    lm_worker, token2wav_worker, ears_worker = (
        WorkerProcess(
            [sys.executable, "-m", f"studio.backends.{program}"],
            name,
            settings.for_worker(),
            supervision=supervision,
        )
        for name, program in (("lm", "vllm_lm"), ("token2wav", "torch_token2wav"), ("ears", "ears"))
    )
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
    store = VoiceStore(settings.folder("library"), settings.max_voices)
    add_starters(store, ROOT / "assets" / "starters")
    prompts = VoicePrompts(
        store,
        PromptEncoderClient(token2wav_worker),
        settings.folder("prompts"),
        fingerprint(checkpoint),
        prepare=token2wav.prepare,
    )
    model = ServedModel(
        settings.served_model_name or checkpoint.id,
        settings.sampling(checkpoint.sampling),
        checkpoint.modes,
        checkpoint.sound_tags,
        checkpoint.languages,
        checkpoint.interleaved,
    )

    async def first_voice() -> VoicePrompt:
        return await prompts.of(first_in_order(store, "en"))

    workers = {"lm": lm_worker, "token2wav": token2wav_worker}
    sizes = LmSizes.of(checkpoint)
    office = open_office(engine, workers, settings, model, checkpoint.sampling, sizes, first_voice)
    ears = EarsClient(ears_worker, settings.asr_model)
    return build_web(engine, store, prompts, settings, model, ears, office=office)


def application(settings: Settings) -> FastAPI | Arrival:
    """The studio; where the checkpoint must be fetched first, what answers until then. Raises CheckpointError."""
    repository = Repository.of(settings)
    if repository is None:
        return build(settings)
    served = settings.served_model_name or repository.id.partition("/")[2]

    def build_on(folder: Path) -> FastAPI:
        return build(settings.model_copy(update={"model_dir": str(folder), "served_model_name": served}))

    return Arrival(Download(repository, settings.folder("cache") / "hub"), build_on)


def main(argv: list[str]) -> None:
    settings = exit_on_error(argv)
    ensure_registered(ROOT)  # vLLM finds our model through the installed package
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if not ffmpeg_available():
        logging.getLogger("studio").warning("%s", render("doctor.ffmpeg_missing"))
    try:
        app = application(settings)
    except CheckpointError as error:
        sys.exit(f"app.py: {error}")
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
