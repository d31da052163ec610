"""`python -m studio.bench`: how fast a studio is, as its listeners meet it.

Without --url it starts one for the run and says how long that took and what memory it holds. It prints a table for
people and, as the last line, one JSON object for machines; --out appends that line to a file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from studio.bench import pages, service
from studio.bench.conditions import conditions
from studio.bench.figures import table
from studio.bench.load import ANSWER_TIMEOUT_S
from studio.bench.measure import Bench, Row
from studio.bench.texts import BY_SECONDS


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m studio.bench", description=__doc__.split("\n\n")[0])
    parser.add_argument("--url", help="a studio that runs already; without it one is started for this run")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--voice", help="name or id; the library's first voice if it is not given")
    parser.add_argument("--streams", default="1,2", help="loads, by requests at a time: 1,2,4")
    parser.add_argument("--plays", type=int, default=10, help="requests of each load")
    parser.add_argument("--warm", type=int, default=2, help="requests before, which are not counted")
    parser.add_argument(
        "--limit-s", type=float, help="of each load by requests at a time; the rest is cut off"
    )
    parser.add_argument(
        "--seconds", type=int, default=6, choices=sorted(BY_SECONDS), help="length of the texts, about"
    )
    parser.add_argument(
        "--first-sound", action="store_true", help="first sound of 3, 6 and 12 s, warm, one at a time"
    )
    parser.add_argument("--rates", default="", help="loads by requests a second that come at random: 0.2,0.4")
    parser.add_argument(
        "--baseline", action="store_true", help="then the same loads on plain serving of the same models"
    )
    parser.add_argument(
        "--pages", type=int, help="not speech: what so many open Admin pages cost an idle studio"
    )
    parser.add_argument("--looks", type=int, default=60, help="looks of each of these pages, one a second")
    parser.add_argument("--admin-password", default="bench", help="of the studio at --url")
    parser.add_argument("--out", type=Path, help="file to which the JSON line is appended")
    parser.add_argument("--note", default="", help="a word on the conditions, kept in the JSON line")
    args = parser.parse_args(argv)
    if args.baseline and (args.url or args.pages):
        parser.error(
            "--baseline needs the machine to itself after a studio of its own: leave out --url and --pages"
        )
    return args


async def run(args: argparse.Namespace) -> Row:
    """Start a studio if none is given, put the loads on it, and collect everything that was measured."""
    report: Row = {**conditions(), "note": args.note}
    measure = pages_open if args.pages else measured
    if args.url:
        return report | await measure(args, args.url)
    async with service.started(["--admin-password", args.admin_password]) as studio:
        report |= {"page_s": round(studio.page_s, 2), "ready_s": round(studio.ready_s, 2)}
        report |= await measure(args, studio.url)
    if args.baseline:
        report["baseline"] = await baseline(args, str(report["voice"]))
    return report


async def pages_open(args: argparse.Namespace, url: str) -> Row:
    """The web process without pages and with them; it must run on this machine."""
    web = _local_processes(url).get("web")
    if web is None:
        raise SystemExit("the CPU time of a studio elsewhere cannot be read")

    def cpu_s() -> float:
        return service.cpu_s({"web": web})["web"]

    return {"pages": await pages.rows(url, args.admin_password, args.pages, args.looks, cpu_s)}


async def measured(args: argparse.Namespace, url: str) -> Row:
    """All loads, one after the other, and the memory that the service holds after them."""
    headers = {"Authorization": f"Bearer {args.api_key}"} if args.api_key else {}
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=url, headers=headers, timeout=ANSWER_TIMEOUT_S, limits=limits
    ) as client:
        voices = (await client.get("/v1/audio/voices")).raise_for_status().json()["data"]
        voice = next((v for v in voices if args.voice in (None, v["name"], v["id"])), None)
        if voice is None:
            raise SystemExit(f"no voice {args.voice}; there are: {', '.join(v['name'] for v in voices)}")
        bench = Bench(client, voice, _local_processes(url), args.plays, args.limit_s)
        await bench.warm(args.seconds, args.warm)
        rows = [await bench.closed(args.seconds, int(n)) for n in args.streams.split(",")]
        rows += [await bench.open(args.seconds, float(rate)) for rate in args.rates.split(",") if rate]
        found: Row = {"voice": voice["name"], "rows": rows}
        if args.first_sound:
            found["first_sound"] = [await bench.closed(seconds, 1) for seconds in BY_SECONDS]
        return found | {"memory_mb": service.memory_mb(bench.parts), "gpu_bytes": service.gpu_bytes()}


async def baseline(args: argparse.Namespace, voice: str) -> list[Row]:
    """The same loads on plain servers of the same models, each in a process of its own, one after the other."""
    rows: list[Row] = []
    for system in ("naive", "batch"):
        command = [
            sys.executable, "-m", "studio.bench.baseline", system, "--voice", voice, "--streams", args.streams,
            "--plays", str(args.plays), "--seconds", str(args.seconds),
        ]  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            *command, cwd=service.ROOT, stdout=asyncio.subprocess.PIPE
        )
        told, _ = await process.communicate()
        if process.returncode:
            raise SystemExit(f"{' '.join(command[1:])} ended with status {process.returncode}")
        rows += map(json.loads, told.splitlines())
    return rows


def _local_processes(url: str) -> dict[str, list]:
    where = urlsplit(url)
    return service.processes(where.port or 80) if where.hostname in ("127.0.0.1", "localhost", "::1") else {}


def show(report: Row) -> None:
    """Conditions, tables, and the JSON line last."""
    for name in (
        "hardware",
        "commit",
        "vllm",
        "torch",
        "load_1m",
        "note",
        "page_s",
        "ready_s",
        "voice",
        "memory_mb",
    ):
        if report.get(name) not in (None, ""):
            print(f"{name}: {report[name]}")
    for name in ("rows", "first_sound", "baseline", "pages"):
        if name in report:
            print(f"\n{name}\n{table(report[name])}")  # type: ignore[arg-type]
    print()
    print(json.dumps(report))


def main(argv: Sequence[str]) -> None:
    args = arguments(argv)
    report = asyncio.run(run(args))
    show(report)
    if args.out:
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
