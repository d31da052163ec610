"""`python -m studio.evaluate.comparison`: a whole listening test of two settings, with simulated raters, to a report.

Starts the studio once with each number of flow steps, lets it make both conditions' clips, opens the test, and has
programs rate them over HTTP as blindly as people would. Every page of the report says that no person listened.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import soundfile
import soxr

from studio.bench.conditions import conditions
from studio.bench.service import started
from studio.evaluate.asr import ASR_RATE_HZ
from studio.evaluate.dnsmos import QualityJudge
from studio.evaluate.texts import load_texts
from studio.listening.answers import SCALES, Kind, Study, read_csv, write_csv
from studio.listening.companion import Companion, companion
from studio.listening.report import picture_names, render_html, render_pdf, render_picture
from studio.listening.statistics.analysis import Analysis, Options, analyse
from studio.messages import LANGUAGES

ROOT = Path(__file__).resolve().parents[2]
SEED = 20261130
# Spread of raters' levels and of single answers, in points: about what people's opinion scores show.
LEVEL_SD, ANSWER_SD = 0.5, 0.6
LOOK_EVERY_S = 0.5


class Ear:
    """What a simulated rater thinks of a sound: its DNSMOS score. Knows nothing but the sound."""

    def __init__(self) -> None:
        self._judge, self._known = QualityJudge(), {}  # type: ignore[var-annotated]

    def opinion(self, wav: bytes) -> float:
        """1 to 5, the same for the same bytes."""
        key = hashlib.sha256(wav).hexdigest()
        if key not in self._known:
            samples, rate_hz = soundfile.read(io.BytesIO(wav), dtype="float32")
            self._known[key] = self._judge.judge(soxr.resample(samples, rate_hz, ASR_RATE_HZ)).overall
        return float(self._known[key])


async def rate(http: httpx.AsyncClient, rng: np.random.Generator, opinion: Callable[[bytes], float]) -> None:
    """One rater from joining to the end; waits as long as the clips last, as the studio demands."""
    level = rng.normal(0, LEVEL_SD)
    view = (await http.post("/join", json={"consent": True})).raise_for_status().json()
    while view["phase"] == "trial":
        trial = view["trial"]
        sounds = [
            (await http.get(f"/clip/{address}")).raise_for_status().content for address in trial["slots"]
        ]
        thoughts = [await asyncio.to_thread(opinion, sound) for sound in sounds]
        await asyncio.sleep(trial["hear_s"] * len(sounds))
        scores = [
            float(np.clip(round(t + level + rng.normal(0, ANSWER_SD)), *SCALES[Kind.MOS])) for t in thoughts
        ]
        if trial["check"] is not None:
            scores = [trial["check"]]
        answer = {"number": trial["number"], "scores": scores, "seconds": trial["hear_s"]}
        view = (await http.post("/answer", json=answer)).raise_for_status().json()


async def make(http: httpx.AsyncClient, test: str) -> None:
    """Have the studio make what it can of the conditions with the settings it runs with."""
    (await http.post(f"/v1/listening/tests/{test}/make")).raise_for_status()
    while (told := (await http.get(f"/v1/listening/tests/{test}")).raise_for_status().json())["making"]:
        await asyncio.sleep(LOOK_EVERY_S)
    if told["problem"]:
        raise SystemExit(told["problem"])


def design(options: argparse.Namespace) -> dict[str, Any]:
    """The form of the test: the same texts and seed in every condition, traps and repeats for screening."""
    source = {"kind": "speech", "voice": options.voice}
    return {
        "kind": "mos", "title": f"{options.voice}: {' against '.join(map(str, options.steps))} flow steps",
        "texts": load_texts("en")[: options.sentences], "headphones": "off", "traps": 2, "repeats": 2, "seed": SEED,
        "conditions": [
            {"name": f"{n} flow steps", "source": source | {"studio": {"flow_steps": n}}} for n in options.steps
        ],
    }  # fmt: skip


async def run(options: argparse.Namespace, data: str) -> tuple[dict[str, Any], str, str]:
    """The test as it was made, its answers as CSV and its measures as JSON."""
    test, owner = "", httpx.Cookies()
    for steps in options.steps:
        flags = ["--flow-steps", str(steps), "--data-dir", data]
        async with started(flags) as service, httpx.AsyncClient(base_url=service.url, timeout=900) as http:
            http.cookies = owner
            if not test:
                made = (await http.post("/v1/listening/tests", json=design(options))).raise_for_status()
                test = made.json()["id"]
            await make(http, test)
            owner = http.cookies
            if steps == options.steps[-1]:
                return await ask_raters(http, service.url, test, options.raters)
    raise SystemExit("no steps")


async def ask_raters(
    http: httpx.AsyncClient, url: str, test: str, raters: int
) -> tuple[dict[str, Any], str, str]:
    """Open the test, have it rated by so many at once, and measure its clips."""
    base = f"/v1/listening/tests/{test}"
    (await http.post(f"{base}/open")).raise_for_status()
    [link] = (await http.post(f"{base}/invitations", json={})).raise_for_status().json()["data"]
    ear = Ear()
    clients = [
        httpx.AsyncClient(base_url=f"{url}/listen/{link['token']}", timeout=300) for _ in range(raters)
    ]
    await asyncio.gather(
        *(rate(client, np.random.default_rng([SEED, k]), ear.opinion) for k, client in enumerate(clients))
    )
    for client in clients:
        await client.aclose()
    (await http.post(f"{base}/measures")).raise_for_status()
    found = (await http.get(base)).raise_for_status().json()
    answers = (await http.get(f"{base}/answers.csv")).raise_for_status().text
    return found, answers, (await http.get(f"{base}/measures")).raise_for_status().text


def keep(out: Path, voice: str, test: dict[str, Any], answers_csv: str, measures: str) -> None:
    """Write what the report is made from, and under what conditions that was made."""
    # Ids of raters are drawn anew in each run; numbers in their order of joining say as much.
    answers = read_csv(answers_csv)
    numbers = {name: f"r{k:02}" for k, name in enumerate(dict.fromkeys(a.rater for a in answers), 1)}
    answers = [
        replace(a, test="comparison", rater=numbers[a.rater], trial=f"{numbers[a.rater]}-{a.position}")
        for a in answers
    ]
    told = test["design"]
    made = {
        "title": told["title"], "voice": voice, "conditions": {c["id"]: c["name"] for c in told["conditions"]},
        "texts": told["texts"], "seed": SEED, "date": datetime.now(UTC).strftime("%Y-%m-%d"), **conditions(),
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    (out / "answers.csv").write_text(write_csv(answers), encoding="utf-8")
    (out / "measures.json").write_text(measures.strip() + "\n", encoding="utf-8")
    (out / "conditions.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def read(out: Path) -> tuple[Analysis, Companion]:
    """The analysis of what `keep` wrote, and the measures beside it."""
    made = json.loads((out / "conditions.json").read_text(encoding="utf-8"))
    answers = read_csv((out / "answers.csv").read_text(encoding="utf-8"))
    named = ("voice", "seed", "date", "hardware", "commit", "vllm", "torch", "precision")
    material = {f"sentence {n}": text for n, text in enumerate(made["texts"], 1)}
    material |= {name: str(made[name]) for name in named}
    material["raters"] = f"programs: a clip's DNSMOS, a level of their own (SD {LEVEL_SD}), chance (SD {ANSWER_SD})"
    study = Study(
        "comparison", made["title"], Kind.MOS, made["conditions"], simulated=True, material=material
    )
    measures = (out / "measures.json").read_text(encoding="utf-8")
    return analyse(answers, study, Options(mixed=True)), companion(measures, answers, study)


def write(out: Path) -> None:
    """The report in all its forms, from what `keep` wrote."""
    analysis, beside = read(out)
    for language in LANGUAGES:
        (out / f"report-{language}.html").write_text(
            render_html(analysis, language, beside), encoding="utf-8"
        )
        (out / f"report-{language}.pdf").write_bytes(render_pdf(analysis, language, beside))
    for name in picture_names(analysis):
        (out / f"{name}.png").write_bytes(render_picture(analysis, name, "png"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m studio.evaluate.comparison", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "listening" / "flow-steps")
    parser.add_argument("--voice", default="Clara")
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[10, 4], help="flow steps, one condition each"
    )
    parser.add_argument("--sentences", type=int, default=8)
    parser.add_argument("--raters", type=int, default=16)
    parser.add_argument("--report-only", action="store_true", help="write the report of what is there anew")
    options = parser.parse_args()
    if not options.report_only:
        with tempfile.TemporaryDirectory(prefix="studio-comparison-") as data:
            keep(options.out, options.voice, *asyncio.run(run(options, data)))
    write(options.out)


if __name__ == "__main__":
    main()
