"""`python -m studio.bench.inside [flags of app.py]`: table, waterfall and growth curve of one start of the studio.

The studio serves in this process, without a page. Its listeners come over HTTP from processes of their own, and then
past HTTP from this one. The clock is the server's: from a request's arrival to the first bytes of its sound that were
handed to the transport. Each row is a JSON line, printed and kept as soon as it is known; a load that fails does not
stop the others. Exit status 1 where one failed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import uvicorn

from app import build
from studio.admin.lab_load import hear, planned_figures
from studio.admin.office import limits_of
from studio.admin.planner import Workload
from studio.api.body import SpeechBody
from studio.api.web import Rooms
from studio.bench import service
from studio.bench.conditions import conditions
from studio.bench.figures import Play, percentile, row
from studio.bench.first_bytes import FirstBytes, Sent
from studio.bench.growth import growth_row, hop_times, longest_s
from studio.bench.load import Line, body_of, closed_loop, lines_of
from studio.bench.rows import Out, Row
from studio.bench.serving import listeners, serving
from studio.bench.texts import BY_SECONDS
from studio.bench.waterfall import waterfall
from studio.checkpoint import read_checkpoint
from studio.engine.engine import Engine
from studio.engine.mps import gpu_sharing
from studio.engine.token_hop import HopSchedule
from studio.engine.worker_command import Variables
from studio.errors import SettingsError
from studio.library.voice import Voice
from studio.settings import Settings, load
from studio.setup.registration import ensure_registered
from studio.speech import BLOCK_TOKENS

WARMING_SEED = 9000
Measure = Callable[[], Awaitable[None]]
"""Adds its rows. Raises whatever goes wrong."""


def arguments(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Ours, and those of app.py."""
    parser = argparse.ArgumentParser(
        prog="python -m studio.bench.inside", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "--parts", default="http,engine,growth", help="in this order, of http, engine, growth"
    )
    parser.add_argument("--streams", default="1,8,32,64", help="closed loops, by requests at a time")
    parser.add_argument("--burst", type=int, default=128, help="requests that come at once; 0: none")
    parser.add_argument(
        "--rounds", type=int, default=3, help="requests of each stream of a closed loop"
    )
    # of fewer the 95th percentile would be the worst one
    parser.add_argument("--fewest", type=int, default=20, help="requests of a closed loop at the least")
    parser.add_argument(
        "--seconds", type=int, default=6, choices=sorted(BY_SECONDS), help="length of the texts, about"
    )
    parser.add_argument("--limit-s", type=float, default=40.0, help="of each load, whose rest is cut off")
    parser.add_argument("--voice", default="Clara", help="name of a voice of the library")
    parser.add_argument("--growth-streams", default="1,32", help="speeches at once whose hops are timed")
    parser.add_argument("--growth-s", type=int, default=60, help="length of these, where the pool holds them")
    parser.add_argument("--gpu", type=int, help="the one GPU whose memory counts, as the driver numbers them")
    parser.add_argument("--commit", default="", help="where no checkout is")
    parser.add_argument("--note", default="", help="a word on the conditions, kept in each row")
    parser.add_argument("--out", type=Path, help="file to which JSON lines are appended")
    args, flags = parser.parse_known_args(argv)
    args.parts = args.parts.split(",")
    if unknown := set(args.parts) - PARTS.keys():
        parser.error(f"--parts knows no {', '.join(unknown)}")
    args.streams, args.growth_streams = (
        [int(n) for n in given.split(",") if n] for given in (args.streams, args.growth_streams)
    )
    return args, flags


@dataclass(frozen=True, slots=True)
class Studio:
    """What is measured. clock: notes what is sent."""

    url: str
    rooms: Rooms
    settings: Settings
    voice: Voice
    clock: FirstBytes

    @property
    def engine(self) -> Engine:
        return self.rooms.models.default.engine

    def fact(self, name: str) -> int:
        """A number that one of the workers tells of itself; 0 where none does."""
        return next((int(w.facts[name]) for w in self.engine.state().workers if name in w.facts), 0)

    async def speak(self, line: Line) -> Play:
        """One request past HTTP, with all else that a request over HTTP meets."""
        sent_s = time.monotonic()
        stream, _ = await self.rooms.speaking.begin(SpeechBody(**body_of(line)), f"bench {line.seed}")  # type: ignore[arg-type]
        return await hear(stream, sent_s)


@asynccontextmanager
async def served(settings: Settings, voice: str, shared: Variables) -> AsyncIterator[Studio]:
    """The studio, ready. shared: see app.build. Raises: RuntimeError with the reason if a worker does not start."""
    app = build(settings, shared)
    clock = FirstBytes(app)
    async with serving(clock) as url:
        rooms: Rooms = app.state.rooms
        await _ready(rooms.models.default.engine)
        yield Studio(url, rooms, settings, rooms.voices.find(voice), clock)


async def _ready(engine: Engine) -> None:
    async with asyncio.timeout(service.START_LIMIT_S):
        while not (state := engine.state()).ready:
            for worker in state.workers:
                if worker.phase in ("failed", "restarting") and worker.reason:
                    raise RuntimeError(f"{worker.name}: {worker.reason}")
            await asyncio.sleep(service.LOOK_EVERY_S)


def over_http(args: argparse.Namespace, studio: Studio, out: Out) -> list[Measure]:
    """Closed loops and the burst from a process of their own, and a waterfall of each."""

    async def measure(load_name: str, streams: int, plays: int) -> None:
        studio.clock.sent.clear()
        voice = str(studio.voice.name)
        client = await listeners(studio.url, voice, streams, plays, args.seconds, args.limit_s)
        sent = list(studio.clock.sent)
        mine = {f"client_{name}": client.pop(name) for name in list(client) if name.startswith("ttfa_")}
        out.add(_row(args, studio, "http", load_name, client | mine | ttfa(sent)))
        found = waterfall(sent, (await studio.engine.stats()).last_requests)
        out.add({"bench": "waterfall", "load": load_name, "streams": streams, **found})

    return [partial(measure, *load) for load in loads_of(args)]


def past_http(args: argparse.Namespace, studio: Studio, out: Out) -> list[Measure]:
    """The same loads from this process."""

    async def measure(load_name: str, streams: int, plays: int) -> None:
        lines = islice(lines_of(studio.voice.id, args.seconds), plays)
        came = await closed_loop(studio.speak, lines, streams, args.limit_s)
        for failure in came.failures:
            print(f"failed: {failure}", file=sys.stderr)
        figures = row(streams, came.plays, len(came.failures), came.wall_s)
        out.add(_row(args, studio, "engine", load_name, figures))

    return [partial(measure, *load) for load in loads_of(args)]


def loads_of(args: argparse.Namespace) -> list[tuple[str, int, int]]:
    """Name, requests at a time, and requests of each load."""
    closed = [("closed loop", streams, max(args.fewest, args.rounds * streams)) for streams in args.streams]
    return [*closed, *([("burst", args.burst, args.burst)] if args.burst else [])]


def ttfa(sent: Sequence[Sent]) -> Row:
    """By the server's clock."""
    if not sent:
        return {}
    return {
        f"ttfa_p{p}_ms": round(1000 * percentile([s.ttfa_s for s in sent], p / 100), 1) for p in (50, 95, 99)
    }


def _row(args: argparse.Namespace, studio: Studio, via: str, load_name: str, figures: Row) -> Row:
    about = {
        "bench": "table", "via": via, "load": load_name, "text_s": args.seconds,
        "prompt_s": round(studio.voice.clip_s, 2),
    }  # fmt: skip
    return about | figures | _planned(studio, figures) | {"gpu_bytes": service.gpu_bytes(args.gpu)}


def _planned(studio: Studio, figures: Row) -> Row:
    """What the planner says of such a load, by what steps cost in it."""
    office, clip_s, streams = studio.rooms.office, figures.get("clip_s"), figures.get("streams")
    if office is None or not isinstance(clip_s, float) or not isinstance(streams, int):
        return {}
    return planned_figures(office.tuning.plan(studio.settings, Workload(studio.voice.clip_s, clip_s, streams)))


def growing(args: argparse.Namespace, studio: Studio, out: Out) -> list[Measure]:
    """Hops of one block each, whatever is set."""

    async def measure(streams: int) -> None:
        voice = await studio.rooms.models.default.prompts.of(studio.voice)
        frame_bytes, codes = studio.fact("flow_frame_bytes"), studio.fact("speech_codes")
        pool_bytes = int(studio.settings.flow_pool_gib * 2**30)
        seconds = longest_s(pool_bytes, frame_bytes, streams, args.growth_s)
        usual = limits_of(studio.settings)
        studio.engine.limit(replace(usual, hops=HopSchedule(BLOCK_TOKENS, 1.0, BLOCK_TOKENS)))
        try:
            async with asyncio.timeout(2 * args.limit_s):
                hops_s = await hop_times(studio.engine, voice, codes, streams, seconds)
        finally:
            studio.engine.limit(usual)
        found = growth_row(hops_s, streams, len(voice.mel), frame_bytes)
        out.add({"bench": "growth", "speech_s": seconds, "frame_bytes": frame_bytes, **found})

    return [partial(measure, streams) for streams in args.growth_streams]


PARTS: dict[str, Callable[[argparse.Namespace, Studio, Out], list[Measure]]] = {
    "http": over_http, "engine": past_http, "growth": growing,
}  # fmt: skip


async def run(args: argparse.Namespace, settings: Settings, out: Out, shared: Variables) -> bool:
    """Whether all went well."""
    began_s = time.monotonic()
    well = True
    async with served(settings, args.voice, shared) as studio:
        facts = {worker.name: worker.facts for worker in studio.engine.state().workers}
        out.conditions["precision"] = precision_of(settings, facts.get("token2wav", {}))
        out.add({"bench": "start", "ready_s": round(time.monotonic() - began_s, 1), "workers": facts})
        await _warm(args, studio, out)
        for name in args.parts:
            for measure in PARTS[name](args, studio, out):
                try:
                    await measure()
                except Exception as error:  # the other figures are worth having
                    well = False
                    traceback.print_exc()
                    out.add({"bench": name, "failed": f"{type(error).__name__}: {error}"})
    return well


async def _warm(args: argparse.Namespace, studio: Studio, out: Out) -> None:
    """The voice is encoded and kept, and every size of batch was there, before anything counts."""
    most = max([*args.streams, args.burst])
    for streams in (1, most):
        lines = islice(lines_of(studio.voice.id, 3, WARMING_SEED), streams)
        came = await closed_loop(studio.speak, lines, streams, 2 * args.limit_s)
        if came.failures:
            out.add({"bench": "warm", "streams": streams, "failed": came.failures[0]})


def precision_of(settings: Settings, facts: Mapping[str, object]) -> str:
    """In what speech LM, flow and vocoder compute. facts: of token2wav, which tells what it chose by itself."""
    usual = "bfloat16" if facts.get("device") == "cuda" else "float32"
    lm = usual if settings.dtype == "auto" else settings.dtype
    told = {"flow_precision": "pages", "flow_dtype": "estimator", "vocoder_precision": "vocoder"}
    return ", ".join([f"LM {lm}", *(f"{told[name]} {facts[name]}" for name in told if name in facts)])


def forced(settings: Settings) -> str:
    """What bounds the length of speech, where it is no end that the LM draws: weights drawn at random draw none."""
    about = read_checkpoint(Path(settings.model_dir))
    least, most = about.min_token_text_ratio, about.max_token_text_ratio
    return f"{most:g} tokens for each text id" if least == most else ""


def main(argv: Sequence[str]) -> int:
    args, flags = arguments(argv)
    ensure_registered(service.ROOT)
    service.show_workers()
    with tempfile.TemporaryDirectory(prefix="studio-bench-") as data:
        settings = load(["--page", "false", "--data-dir", data, *flags, *service.OPEN])
        about = {**conditions("", args.commit, args.gpu), "note": args.note, "forced": forced(settings)}
        out = Out(args.out, about)
        try:
            loop = uvicorn.Config(build).get_loop_factory()  # as app.py runs
            with (
                gpu_sharing(settings.gpu_sharing, settings.folder("cache"), settings.found_device()) as shared,
                asyncio.Runner(loop_factory=loop) as runner,
            ):
                return 0 if runner.run(run(args, settings, out, shared)) else 1
        except (RuntimeError, TimeoutError, SettingsError) as error:
            out.add({"bench": "start", "failed": f"{type(error).__name__}: {error}"})
            return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
