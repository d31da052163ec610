"""What serving this model without our engine gives: `python -m studio.bench.baseline SYSTEM ...`, to compare with.

naive: one request at a time, transformers' `generate`, and the flow computed anew over the whole prefix at every hop,
as upstream streams. batch: as many requests as there are listeners in one padded `generate`, sound once all have ended.
Each row, as `figures.row` makes them, is one JSON line, printed and kept as soon as it is known.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import soundfile
import torch

from studio.bench.conditions import conditions
from studio.bench.figures import Play, row
from studio.bench.plain_models import Manner, PlainLM, PlainToken2Wav
from studio.bench.playback import Arrival
from studio.bench.rows import Out
from studio.bench.texts import BY_SECONDS
from studio.checkpoint import TOKENIZER_FOLDER, read_checkpoint
from studio.library.starters import STARTERS, starter_entries
from studio.models.prompt.encoder import OnnxPromptEncoder
from studio.protocols import Clock
from studio.speech import SAMPLE_RATE_HZ, SynthesisRequest, VoicePrompt
from studio.text.frontend import TextFrontend

FLOW_STEPS = 10


class Speaker(Protocol):
    """What speaks; at_s of what it gives counts from the call."""

    def naive(self, text: str, seed: int) -> list[Arrival]: ...
    def batch(self, texts: Sequence[str], seed: int) -> list[list[Arrival]]: ...


class Baseline:
    """The real one: a checkpoint and a starter voice, loaded once."""

    def __init__(self, folder: Path, voice: str, device: str, cache: Path) -> None:
        checkpoint = read_checkpoint(folder)
        self._sampling = checkpoint.sampling
        self._frontend = TextFrontend.load(
            folder / TOKENIZER_FOLDER, checkpoint.text_frontend, checkpoint.languages, 4096, checkpoint.sound_tags,
            checkpoint.version,
        )  # fmt: skip
        dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
        self._lm = PlainLM(checkpoint, cache, device, dtype)
        self._token2wav = PlainToken2Wav.of(checkpoint, FLOW_STEPS, device)
        entry = starter_entries()[voice]
        samples, rate_hz = soundfile.read(STARTERS / entry["file"], dtype="float32")
        self._voice: VoicePrompt = OnnxPromptEncoder(folder).encode(samples, rate_hz, entry["transcript"])
        self._prompt_text = self._frontend.prompt_ids(SynthesisRequest("", self._voice))

    def naive(self, text: str, seed: int) -> list[Arrival]:
        """One request, streamed."""
        began_s = time.monotonic()
        arrivals = []
        for segment in self._frontend.segments(text):
            tokens = self._lm.stream(segment.token_ids, self._manner(seed))
            for sound in self._token2wav.stream(tokens, self._voice, seed):
                arrivals.append(Arrival(time.monotonic() - began_s, len(sound) / SAMPLE_RATE_HZ))
        return arrivals

    def batch(self, texts: Sequence[str], seed: int) -> list[list[Arrival]]:
        """So many requests at once; each is heard when its whole sound is made, one after the other."""
        began_s = time.monotonic()
        segments = [
            (place, segment.token_ids)
            for place, text in enumerate(texts)
            for segment in self._frontend.segments(text)
        ]
        spoken = self._lm.batch([ids for _, ids in segments], self._manner(seed))
        arrivals: list[list[Arrival]] = [[] for _ in texts]
        for (place, _), tokens in zip(segments, spoken, strict=True):
            sound = self._token2wav.whole(tokens, self._voice, seed)
            arrivals[place].append(Arrival(time.monotonic() - began_s, len(sound) / SAMPLE_RATE_HZ))
        return arrivals

    def _manner(self, seed: int) -> Manner:
        return Manner(self._voice, self._prompt_text, replace(self._sampling, seed=seed))


def naive_load(
    system: Speaker, texts: Sequence[str], streams: int, clock: Clock = time.monotonic
) -> tuple[list[Play], float]:
    """So many listeners in a line at one speaker, each back in it when served; times count from joining the line."""
    begin_s = clock()
    joined = deque([begin_s] * streams)
    plays = []
    for number, text in enumerate(texts):
        joined_s = joined.popleft()
        waited_s = clock() - joined_s
        arrivals = _later(system.naive(text, number + 1), waited_s)
        joined.append(clock())
        plays.append(Play(arrivals, joined[-1] - joined_s, 0.0))
    return plays, clock() - begin_s


def batch_load(
    system: Speaker, texts: Sequence[str], streams: int, clock: Clock = time.monotonic
) -> tuple[list[Play], float]:
    """So many listeners at once, the next batch when the one before has ended."""
    begin_s = clock()
    plays = []
    for first in range(0, len(texts), streams):
        for arrivals in system.batch(texts[first : first + streams], first + 1):
            plays.append(Play(tuple(arrivals), arrivals[-1].at_s, 0.0))
    return plays, clock() - begin_s


def _later(arrivals: Sequence[Arrival], by_s: float) -> tuple[Arrival, ...]:
    return tuple(Arrival(arrival.at_s + by_s, arrival.audio_s) for arrival in arrivals)


LOADS = {"naive": naive_load, "batch": batch_load}


def measure(args: argparse.Namespace, out: Out) -> None:
    """A row for each system and number of listeners, after one speech that is not counted. One load of the models."""
    with tempfile.TemporaryDirectory(prefix="studio-baseline-") as passing:
        system = Baseline(args.folder, args.voice, args.device, args.cache_dir or Path(passing))
        said = BY_SECONDS[args.seconds]
        for name in args.systems:
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            LOADS[name](system, said[:1], 1)
            for streams in map(int, args.streams.split(",")):
                texts = [said[n % len(said)] for n in range(max(args.plays, streams))]
                plays, wall_s = LOADS[name](system, texts, streams)
                figures = row(streams, plays, 0, wall_s)
                memory = {"peak_mb": _peak_mb(), "gpu_bytes": torch.cuda.max_memory_allocated()}
                out.add({"system": name, "text_s": args.seconds, **figures, **memory})


def _peak_mb() -> int:
    """The most memory that this process has held so far."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m studio.bench.baseline", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("systems", nargs="+", choices=sorted(LOADS))
    parser.add_argument("--folder", type=Path, default=Path("assets/voice"), help="checkpoint")
    parser.add_argument("--voice", required=True, choices=sorted(starter_entries()), help="a starter voice")
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--streams", default="1")
    parser.add_argument("--plays", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=6, choices=sorted(BY_SECONDS))
    parser.add_argument(
        "--cache-dir", type=Path, help="folder for the converted checkpoint; else a passing one"
    )
    parser.add_argument("--gpu", type=int, help="the one of several that is used, as the driver numbers them")
    parser.add_argument("--commit", default="", help="where no checkout is")
    parser.add_argument("--out", type=Path, help="file to which the rows are appended as JSON lines")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    args = arguments(argv)
    precision = "LM bfloat16, else float32" if args.device.startswith("cuda") else "float32"
    measure(args, Out(args.out, {**conditions(precision, args.commit, args.gpu), "bench": "baseline"}))


if __name__ == "__main__":
    main(sys.argv[1:])
