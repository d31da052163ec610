"""`python -m studio.bench.host`: what the studio's own processes carry, with workers that compute nothing.

Engine, worker processes and messages are the real ones, listeners are in the engine's process; speech tokens come at a
set pace and sound is silence (`scripted.py`). One process is full when its `cpu_*`, CPU seconds for a second of sound,
times the sound made a second is 1. Prints a table and, as the last line, one JSON object.

`--http` puts the API on such an engine, for listeners in another process: the app's own stages of the way to
the first sound are told by the server's clock. `--serve PORT` only serves it.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import uvicorn
from fastapi import FastAPI

from app import settle
from studio.api.web import build_web
from studio.backends.fake import FakePromptEncoder, ScriptedEars, sine, voice_prompt
from studio.bench.conditions import conditions
from studio.bench.figures import Play, row, table
from studio.bench.first_bytes import FirstBytes
from studio.bench.load import Line, closed_loop, lines_of, listened
from studio.bench.rows import Row, tell
from studio.bench.service import ROOT, cpu_s
from studio.bench.serving import listeners, pauses, serving
from studio.bench.waterfall import waterfall
from studio.checkpoint import read_checkpoint
from studio.engine.engine import Engine, EngineLimits
from studio.engine.lm_client import SpeechLMClient
from studio.engine.token2wav_client import Token2WavClient
from studio.engine.worker import WorkerProcess
from studio.library.prompts import VoicePrompts
from studio.library.store import VoiceStore
from studio.registry.loaded import Loaded
from studio.registry.models import Models
from studio.settings import load
from studio.speech import SAMPLE_RATE_HZ, TOKEN_RATE_HZ, Sampling, ServedModel, SynthesisRequest
from studio.text.frontend import TextFrontend

VOICE, PROMPT_TEXT = "Nobody", "The clip that was said by nobody at all, in so many words."
LIMIT_S = 120.0
OWN = ("http and text", "transport")
"""Stages of a first sound that are the app's."""
SHOWN = 25
"""Lines of a profile."""


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m studio.bench.host", description=__doc__.split("\n\n")[0])
    parser.add_argument("--streams", default="1,8,32,64,128", help="loads, by requests at a time")
    parser.add_argument(
        "--plays", type=int, default=0, help="requests of each load; 0: three for each stream"
    )
    parser.add_argument("--clip-s", type=float, default=8.0, help="sound of each request")
    parser.add_argument("--step-ms", type=float, default=3.0, help="of the LM, for all rows at once")
    parser.add_argument(
        "--interval", type=int, default=1, help="tokens that the LM tells at once, as vLLM counts it"
    )
    parser.add_argument("--prompt-s", type=float, default=5.0, help="speech of the voice prompt")
    parser.add_argument("--rows", type=int, default=32, help="most rows of a token2wav step")
    parser.add_argument("--profile", action="store_true", help="where the engine's process spends its time")
    parser.add_argument("--http", action="store_true", help="listeners over HTTP, from another process")
    parser.add_argument("--serve", type=int, metavar="PORT", help="serve the API; nothing is measured")
    parser.add_argument(
        "--takes-max-mb", type=float, default=2000.0, help="over HTTP: disk for takes; 0: none"
    )
    parser.add_argument("--out", type=Path, help="file to which the JSON line is appended")
    return parser.parse_args(argv)


def scripted(args: argparse.Namespace) -> tuple[Engine, list[WorkerProcess]]:
    """An engine over scripted workers, not started yet."""
    paced = {
        "step_s": args.step_ms / 1e3,
        "tokens": round(args.clip_s * TOKEN_RATE_HZ),
        "interval": args.interval,
    }
    workers = [
        WorkerProcess([sys.executable, "-m", "studio.bench.scripted", name], name, paced)
        for name in ("lm", "token2wav")
    ]
    about = read_checkpoint(ROOT / "assets" / "voice")
    text = TextFrontend.load(
        about.tokenizer_folder, about.text_frontend, about.languages, 1000, about.sound_tags, about.version
    )
    most = max(map(int, args.streams.split(",")))
    limits = EngineLimits(max_running=most, max_per_client=2 * most, max_batch_rows=args.rows)
    lm, token2wav = SpeechLMClient(workers[0]), Token2WavClient(workers[1])
    return Engine(lm, token2wav, text, limits, workers=workers), workers


def web_on(engine: Engine, data: str, args: argparse.Namespace) -> FastAPI:
    """The API on such an engine; its one voice is no voice. data: a folder for what it keeps."""
    flags = ["--data-dir", data, "--page", "false", "--takes-max-mb", str(args.takes_max_mb)]
    settings = load(flags, {})
    store = VoiceStore(settings.folder("library"), settings.max_voices)
    store.add(sine(200.0, 0, round(args.prompt_s * SAMPLE_RATE_HZ)), SAMPLE_RATE_HZ, PROMPT_TEXT, name=VOICE)
    prompts = VoicePrompts(store, FakePromptEncoder(), settings.folder("prompts"), "scripted")
    model = ServedModel("scripted")
    engine.on_warm(settle)
    return build_web(Models(Loaded(model, engine, prompts, {}, model.sampling)), store, settings, ScriptedEars())


def serve(args: argparse.Namespace) -> None:
    """Until it is interrupted."""
    engine, _ = scripted(args)
    with TemporaryDirectory(prefix="studio-host-") as data:
        uvicorn.run(web_on(engine, data, args), port=args.serve, log_level="warning")


async def measured(
    engine: Engine, parts: dict[str, list[psutil.Process]], streams: int, args: argparse.Namespace
) -> Row:
    """One closed loop of so many listeners."""
    voice = voice_prompt("bench", round(args.prompt_s * TOKEN_RATE_HZ))

    async def speak(line: Line) -> Play:
        sent_s = time.monotonic()
        request = SynthesisRequest(line.text, voice, Sampling(seed=line.seed))
        async with await engine.submit(request) as stream:
            sound = (chunk.samples async for chunk in stream)
            return await listened(sound, sent_s, 0.0)

    await closed_loop(speak, islice(lines_of("bench", 6, first_seed=9000), streams), streams)  # not counted
    before = cpu_s(parts)
    load = await closed_loop(speak, islice(lines_of("bench", 6), args.plays or 3 * streams), streams)
    after, audio_s = cpu_s(parts), sum(play.audio_s for play in load.plays)
    found = row(streams, load.plays, len(load.failures), load.wall_s)
    kept = (
        "streams",
        "plays",
        "failures",
        "clip_s",
        "ttfa_p50_ms",
        "ttfa_p95_ms",
        "ttfa_p99_ms",
        "audio_s_per_s",
    )
    return {name: found[name] for name in kept} | {
        "tokens_per_s": round(audio_s * TOKEN_RATE_HZ / load.wall_s),
        "lm_deltas_per_s": round(audio_s * TOKEN_RATE_HZ / args.interval / load.wall_s),
        **{f"cpu_{name}": round((after[name] - before[name]) / audio_s, 5) for name in parts},
    }


async def over_http(args: argparse.Namespace) -> list[Row]:
    """A row for each load of listeners in another process, with the stages of their first sound."""
    engine, workers = scripted(args)
    with TemporaryDirectory(prefix="studio-host-") as data:
        clock = FirstBytes(web_on(engine, data, args))
        async with serving(clock) as url:
            for worker in workers:
                await worker.wait_ready()
            await _heard(url, clock, engine, max(map(int, args.streams.split(","))), args)  # not counted
            return [await _heard(url, clock, engine, int(n), args) for n in args.streams.split(",")]


async def _heard(
    url: str, clock: FirstBytes, engine: Engine, streams: int, args: argparse.Namespace
) -> Row:
    clock.sent.clear()
    parts = {"web": [psutil.Process()]}
    before = cpu_s(parts)
    async with pauses() as found:
        came = await listeners(url, VOICE, streams, args.plays or max(20, 3 * streams), 6, LIMIT_S)
    cpu_ms = 1e3 * (cpu_s(parts)["web"] - before["web"])
    stages: Any = waterfall(clock.sent, (await engine.stats()).last_requests)["stages"]
    return {name: came[name] for name in ("streams", "plays", "failures", "clip_s", "audio_s_per_s")} | {
        "cpu_web_ms_a_request": round(cpu_ms / len(clock.sent), 2),
        "longest_pause_ms": round(1e3 * max(found), 1),
        **{f"{stage} {name}": value for stage in OWN for name, value in stages[stage].items()},
    }


async def run(args: argparse.Namespace) -> list[Row]:
    """A row for each load."""
    if args.http:
        return await over_http(args)
    engine, workers = scripted(args)
    await engine.start()
    try:
        parts = {"web": [psutil.Process()]}
        for worker in workers:
            parts[worker.state.name] = [psutil.Process((await worker.wait_started()).pid)]
        return [await measured(engine, parts, int(streams), args) for streams in args.streams.split(",")]
    finally:
        await engine.close()


def main(argv: Sequence[str]) -> None:
    args = arguments(argv)
    if args.serve:
        serve(args)
        return
    profile = cProfile.Profile()
    with asyncio.Runner(loop_factory=uvicorn.Config(serve).get_loop_factory()) as runner:  # as app.py runs
        rows = profile.runcall(runner.run, run(args)) if args.profile else runner.run(run(args))
    if args.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(SHOWN)
    asked = {name: getattr(args, name) for name in ("step_ms", "interval", "prompt_s", "rows")}
    line: Row = {**conditions("none"), **asked, "host": rows}
    print(table(rows))
    tell(line, args.out)


if __name__ == "__main__":
    main(sys.argv[1:])
