"""`python -m studio.evaluate`: speaks fixed items through a running service, judges them, writes a summary.

Can be stopped and run again: items that have a row are not spoken again. Nothing is retried: a
failed item is a row too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
import soundfile

from studio.evaluate import report
from studio.evaluate.client import SAMPLE_RATE_HZ, ServiceClient, Utterance
from studio.evaluate.judging import Jury, failed_row
from studio.evaluate.results import Row, append_row, read_rows
from studio.evaluate.texts import PROMPTS, Item, Prompt, load_prompts, plan

ROOT = Path(__file__).resolve().parents[2]
# Less sound than one phoneme cannot be judged.
SHORTEST_AUDIO_S = 0.1
# Said once by each voice, unmeasured: encoding a clip is a cost of making a voice, not of its first item.
WARM_UP_TEXT = {"en": "Good morning to you all.", "zh": "大家早上好。"}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m studio.evaluate", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:7860", help="the running service")
    parser.add_argument("--api-key", default="", help="its key, if it asks for one")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "docs" / "evaluation" / "latest", help="folder of the results"
    )
    parser.add_argument("--sets", nargs="*", default=[], help="only these: en_seen en_unseen en_real zh")
    parser.add_argument("--limit", type=int, help="at most so many items a set")
    parser.add_argument(
        "--seed", type=int, default=1, help="item k of the whole plan is spoken with seed + k"
    )
    parser.add_argument(
        "--sampling", default="{}", help='JSON of request fields, such as {"temperature": 0.8}'
    )
    parser.add_argument("--prompts", type=Path, default=PROMPTS, help="folder with prompts.json")
    parser.add_argument("--keep-audio", type=Path, help="folder for the spoken clips, as FLAC")
    parser.add_argument(
        "--speak-only",
        action="store_true",
        help="only keep the clips, where no judges are installed; --wav-folder judges them elsewhere",
    )
    parser.add_argument(
        "--wav-folder", type=Path, help="judge the ITEM.wav or .flac files of this folder instead"
    )
    parser.add_argument(
        "--hardware", default="", help="a line for the report; default: what this machine says"
    )
    parser.add_argument("--report-only", action="store_true", help="only sum up the rows that are there")
    options = parser.parse_args(arguments)
    if options.speak_only and not options.keep_audio:
        parser.error("--speak-only needs --keep-audio FOLDER, for nothing else would be kept")
    if options.speak_only and (options.wav_folder or options.report_only):
        parser.error("--speak-only goes with neither --wav-folder nor --report-only, which speak nothing")
    if options.speak_only:
        options.out = options.keep_audio  # the conditions lie beside the clips
    return options


def hardware() -> str:
    """Processor model and number of cores of this machine."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.partition(":")[2].strip()
            for line in cpuinfo.read_text().splitlines()
            if line.startswith("model name")
        ]
        model = names[0] if names else model
    return f"{os.cpu_count()} cores of {model}"


def commit() -> str:
    """Short hash of the checkout, with a plus if it has been changed since."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run(
        [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    changed = subprocess.run(
        [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=False
    ).stdout
    return (head or "unknown") + ("+" if changed.strip() else "")


def clip_path(folder: Path, item: Item) -> Path | None:
    """The folder's clip of an item, if it has one."""
    paths = (folder / (item.id + ending) for ending in (".wav", ".flac"))
    return next((path for path in paths if path.exists()), None)


def read_utterance(path: Path) -> Utterance:
    """A clip of a folder in place of the service's answer.

    Raises:  ValueError if it is not at 24 kHz.
    """
    samples, rate_hz = soundfile.read(path, dtype="float32")
    if rate_hz != SAMPLE_RATE_HZ:
        raise ValueError(f"{path}: {rate_hz} Hz, not {SAMPLE_RATE_HZ}")
    return Utterance(np.asarray(samples), 0.0, 0.0)


def conditions_of(options: argparse.Namespace, model: str) -> dict[str, object]:
    """What the figures were measured on and with; a resumed run must agree in all but date and commit."""
    return {
        "model": model,
        "seed": options.seed,
        "sampling": options.sampling,
        "concurrency": 1,
        "hardware": options.hardware or hardware(),
        "judges": "whisper tiny.en / base int8 beam 1, Resemblyzer, DNSMOS, WORLD harvest",
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def settle_conditions(path: Path, now: dict[str, object]) -> dict[str, object]:
    """Conditions of an earlier part of the run, or these.

    Raises:  SystemExit if rows made under other conditions are there.
    """
    if not path.exists():
        path.write_text(json.dumps(now, indent=1, ensure_ascii=False) + "\n", encoding="utf8")
        return now
    before = json.loads(path.read_text(encoding="utf8"))
    for key in ("model", "seed", "sampling"):
        if before[key] != now[key]:
            raise SystemExit(f"{path}: {key} was {before[key]!r} and is {now[key]!r}; choose another --out")
    return before


class Session:
    """One run: where utterances come from, who judges them and where rows go."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._rows_path = options.out / "items.csv"
        self._sampling = json.loads(options.sampling)
        self._client = None if options.wav_folder else ServiceClient(options.url, options.api_key)
        self._voices: dict[str, str] = {}
        options.out.mkdir(parents=True, exist_ok=True)
        model = f"clips of {options.wav_folder}" if self._client is None else self._client.model_id()
        self.conditions = settle_conditions(options.out / "conditions.json", conditions_of(options, model))

    def run(self) -> list[Row]:
        """Speak and judge what is missing; gives all rows in plan order."""
        prompts = load_prompts(self._options.prompts)
        items = self._wanted(prompts)
        if self._options.wav_folder:
            items = [item for item in items if clip_path(self._options.wav_folder, item)]
        done = {row.id for row in read_rows(self._rows_path)}
        missing = [item for item in items if item.id not in done]
        order = {item.id: k for k, item in enumerate(plan(prompts))}
        if missing:
            self._speak_and_judge(missing, order, Jury(prompts))
        return sorted(read_rows(self._rows_path), key=lambda row: order[row.id])

    def speak(self) -> int:
        """Speak and keep what has no clip yet, judged by nobody; gives how many failed, each of which is printed."""
        prompts = load_prompts(self._options.prompts)
        order = {item.id: k for k, item in enumerate(plan(prompts))}
        failed = 0
        for item in self._wanted(prompts):
            if clip_path(self._options.keep_audio, item):
                continue
            try:
                self._keep(item, self._utter(item, self._options.seed + order[item.id]))
            except httpx.HTTPError as error:
                failed += 1
                print(f"{item.id}: {type(error).__name__}: {error}", flush=True)
        return failed

    def _wanted(self, prompts: list[Prompt]) -> list[Item]:
        sets = self._options.sets
        return [item for item in plan(prompts, self._options.limit) if not sets or item.set in sets]

    def _keep(self, item: Item, utterance: Utterance) -> None:
        self._options.keep_audio.mkdir(parents=True, exist_ok=True)
        clip = self._options.keep_audio / f"{item.id}.flac"
        begun = clip.with_suffix(".part")
        soundfile.write(begun, utterance.samples, SAMPLE_RATE_HZ, format="FLAC")
        begun.replace(clip)

    def _speak_and_judge(self, missing: list[Item], order: dict[str, int], jury: Jury) -> None:
        for count, item in enumerate(missing, 1):
            row = self._row_of(item, self._options.seed + order[item.id], jury)
            append_row(self._rows_path, row)
            speed = "" if not row.wall_s else f" rtf {row.wall_s / row.audio_s:.2f} ttfa {row.ttfa_s:.2f}"
            heard = row.failure or row.transcript
            print(
                f"{count}/{len(missing)} {item.id} {item.prompt.id} {row.errors}/{row.length}{speed} {heard}",
                flush=True,
            )

    def _row_of(self, item: Item, seed: int, jury: Jury) -> Row:
        try:
            utterance = self._utter(item, seed)
        except httpx.HTTPError as error:
            return failed_row(item, f"{type(error).__name__}: {error}")
        if utterance.audio_s < SHORTEST_AUDIO_S:
            return failed_row(item, f"only {utterance.audio_s:.3f} s of sound")
        if self._options.keep_audio:
            self._keep(item, utterance)
        return jury.judge(item, utterance, timed=self._client is not None)

    def _utter(self, item: Item, seed: int) -> Utterance:
        if self._client is None:
            path = clip_path(self._options.wav_folder, item)
            assert path is not None  # items without a clip were left out of the plan
            return read_utterance(path)
        if item.prompt.id not in self._voices:
            voice = self._client.voice_for(item.prompt)
            self._client.speak(WARM_UP_TEXT[item.language], voice, seed, self._sampling)
            self._voices[item.prompt.id] = voice
        return self._client.speak(item.text, self._voices[item.prompt.id], seed, self._sampling)


def main() -> None:
    options = parse()
    if options.speak_only:
        raise SystemExit(1 if Session(options).speak() else 0)
    if options.report_only:
        conditions = json.loads((options.out / "conditions.json").read_text(encoding="utf8"))
        rows = read_rows(options.out / "items.csv")
    else:
        session = Session(options)
        conditions, rows = session.conditions, session.run()
    summary, line = report.markdown(rows, conditions), report.json_line(rows, conditions)
    (options.out / "summary.md").write_text(summary, encoding="utf8")
    (options.out / "summary.json").write_text(line + "\n", encoding="utf8")
    print(summary)
    print(line)


if __name__ == "__main__":
    main()
