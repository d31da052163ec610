"""Read the synthetic corpus: metadata, Opus clips decoded once into one int16 file per part, the validation split.

It does no signal processing and no batching; `frame_store.py` does both on the device.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import math
import multiprocessing
import os
import time
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 24_000
DURATION_FRAME_SAMPLES = 600
"""The teacher's duration unit: 40 frames a second."""
SAMPLES_PER_TOKEN = 960
PHONEME_CLASSES = 178
"""Ids of the teacher's vocabulary are below this."""
VALIDATION_SHARE = 90
"""One text in so many is never trained on: about 250 clips of the first corpus."""

STRESS_IDS = frozenset({156, 157})
LENGTH_ID = 158
SPACE_ID = 16
PAUSE_MIN_FRAMES = 3
"""A word gap shorter than this (75 ms) is coarticulation, not a pause: its frames go to the next phoneme."""


@dataclass(frozen=True, slots=True)
class Clip:
    """One spoken text. durations: 40 Hz frames of each id with a pad at both ends (len(ids) + 2 numbers)."""

    id: str
    lang: str
    text: str
    speaker: str
    speed: float
    samples: int
    ids: tuple[int, ...]
    durations: tuple[int, ...]
    phonemes: str = ""
    pinyin: str = ""

    @property
    def tokens(self) -> int:
        return self.samples // SAMPLES_PER_TOKEN

    @property
    def validation(self) -> bool:
        """Split by text, so that both readings of one text fall on the same side, in every part."""
        return zlib.crc32(self.text.encode()) % VALIDATION_SHARE == 0


@dataclass(frozen=True, slots=True, eq=False)
class CorpusPart:
    """Decoded clips. audio: int16 [all samples], memory-mapped; starts: int64 [clips], first sample of each."""

    name: str
    clips: tuple[Clip, ...]
    audio: NDArray[np.int16]
    starts: NDArray[np.int64]

    def clip_audio(self, index: int) -> NDArray[np.int16]:
        start = int(self.starts[index])
        return self.audio[start : start + self.clips[index].samples]


def read_index(folder: Path, zips: Iterable[str] | None = None) -> list[tuple[Clip, str]]:
    """Give (clip, zip name) for each line whose zip is asked for, or lies in the folder, in corpus order."""
    wanted = set(zips) if zips is not None else {path.name for path in folder.glob("*.zip")}
    found = []
    with gzip.open(folder / "index.jsonl.gz", "rt", encoding="utf8") as lines:
        for line in lines:
            entry = json.loads(line)
            if entry["file"] in wanted:
                found.append((_clip(entry), entry["file"]))
    return found


def _clip(entry: dict) -> Clip:
    return Clip(
        id=entry["id"],
        lang=entry["lang"],
        text=entry["text"],
        speaker=entry["speaker"],
        speed=float(entry["speed"]),
        samples=int(entry["samples"]),
        ids=tuple(entry["ids"]),
        durations=tuple(entry["durations"]),
        phonemes=entry.get("phonemes", ""),
        pinyin=entry.get("pinyin", ""),
    )


def speaker_names(speakers_json: Path) -> list[str]:
    """Every speaker of the recipe in a fixed order; an index into this list is the speaker's number."""
    recipe = json.loads(speakers_json.read_text(encoding="utf8"))
    return sorted(speaker["name"] for speaker in recipe["speakers"])


def decode_part(
    folder: Path, cache: Path, name: str, zips: list[str] | None = None, workers: int = 0, limit: int = 0
) -> CorpusPart:
    """Decode the clips of some zips in parallel into `cache/name.npy` and describe them in `cache/name.json.gz`.

    The description is renamed into place last, so a part that is listed is complete.
    Raises: ValueError if a clip does not decode to its stated length.
    """
    entries = read_index(folder, zips)[: limit or None]
    lengths = np.array([clip.samples for clip, _ in entries], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    cache.mkdir(parents=True, exist_ok=True)
    audio = np.lib.format.open_memmap(
        cache / f"{name}.npy", mode="w+", dtype=np.int16, shape=(int(starts[-1]),)
    )
    audio.flush()
    workers = workers or os.cpu_count() or 1
    pieces = np.array_split(np.arange(len(entries)), max(1, min(len(entries), workers * 4)))
    jobs = [
        (
            folder,
            cache / f"{name}.npy",
            [(entries[i][0].id, entries[i][1], int(starts[i]), int(lengths[i])) for i in piece],
        )
        for piece in pieces
    ]
    if workers == 1:
        for job in jobs:
            _decode_clips(job)
    else:
        with multiprocessing.get_context("fork").Pool(workers) as pool:
            pool.map(_decode_clips, jobs, chunksize=1)
    partial = cache / f"{name}.partial"
    with gzip.open(partial, "wt", encoding="utf8", compresslevel=1) as out:
        json.dump([asdict(clip) for clip, _ in entries], out, ensure_ascii=False)
    partial.rename(cache / f"{name}.json.gz")
    return load_part(cache, name)


def _decode_clips(job: tuple[Path, Path, list[tuple[str, str, int, int]]]) -> None:
    import soundfile

    folder, target, clips = job
    audio = np.load(target, mmap_mode="r+")
    archives: dict[str, zipfile.ZipFile] = {}
    for clip_id, archive_name, start, length in clips:
        if archive_name not in archives:
            archives[archive_name] = zipfile.ZipFile(folder / archive_name)
        payload = archives[archive_name].read(clip_id + ".opus")
        samples, rate_hz = soundfile.read(io.BytesIO(payload), dtype="int16")
        if rate_hz != SAMPLE_RATE_HZ or len(samples) != length:
            raise ValueError(
                f"clip {clip_id} decodes to {len(samples)} samples at {rate_hz} Hz, expected {length}"
            )
        audio[start : start + length] = samples
    audio.flush()


def load_part(cache: Path, name: str) -> CorpusPart:
    """Open a decoded part; its audio stays on disk until read."""
    with gzip.open(cache / f"{name}.json.gz", "rt", encoding="utf8") as lines:
        entries = json.load(lines)
    clips = tuple(_clip(entry) for entry in entries)
    starts = np.concatenate([[0], np.cumsum([clip.samples for clip in clips])])[:-1].astype(np.int64)
    return CorpusPart(name, clips, np.load(cache / f"{name}.npy", mmap_mode="r"), starts)


def part_names(cache: Path) -> list[str]:
    """Names of the complete parts, oldest name first."""
    return sorted(path.name.removesuffix(".json.gz") for path in cache.glob("*.json.gz"))


def wait_for_part(cache: Path, every_s: float = 0.5) -> None:
    """Return once a first part is complete: trainers load and warm up while the clips are still being decoded."""
    while not part_names(cache):
        time.sleep(every_s)


def phoneme_frames(clip: Clip) -> NDArray[np.int64]:
    """Class of each 40 Hz frame: the ids spread over their durations, marks given to the phoneme they mark.

    Stress marks count as the phoneme after them, length marks as the one before, short word gaps as the phoneme after;
    what is left is what can be heard. Pads are class 0 (silence).
    """
    ids = [0, *clip.ids, 0]
    classes = list(ids)
    for i in range(len(ids) - 2, -1, -1):
        short_gap = ids[i] == SPACE_ID and clip.durations[i] < PAUSE_MIN_FRAMES
        if ids[i] in STRESS_IDS or short_gap:
            classes[i] = classes[i + 1]
    for i in range(1, len(ids)):
        if ids[i] == LENGTH_ID:
            classes[i] = classes[i - 1]
    return np.repeat(np.array(classes, dtype=np.int64), clip.durations)


def resampled_samples(clip: Clip, ratio: float) -> int:
    """Length of the clip when played `ratio` times faster (pitch and formants up together)."""
    return math.ceil(clip.samples / Fraction(str(ratio)))


def phoneme_labels(clip: Clip, rate_hz: int = 50, ratio: float = 1.0) -> NDArray[np.int64]:
    """Class at the centre of each frame of a grid of whole tokens; length = tokens x rate / 25. ratio:
    playing speed."""
    frame_samples = SAMPLE_RATE_HZ // rate_hz
    frames = phoneme_frames(clip)
    count = resampled_samples(clip, ratio) // SAMPLES_PER_TOKEN * SAMPLES_PER_TOKEN // frame_samples
    centres = (np.arange(count) + 0.5) * frame_samples * ratio
    return frames[np.minimum((centres / DURATION_FRAME_SAMPLES).astype(np.int64), len(frames) - 1)]


def main() -> None:
    """Decode some zips of a corpus folder into a cache folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--zips", nargs="*")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--limit", type=int, default=0)
    args = parser.parse_args()
    began_s = time.monotonic()
    part = decode_part(args.folder, args.cache, args.name, args.zips, args.workers, args.limit)
    audio_s = len(part.audio) / SAMPLE_RATE_HZ
    print(
        json.dumps(
            {
                "part": part.name,
                "clips": len(part.clips),
                "audio_s": round(audio_s),
                "wall_s": round(time.monotonic() - began_s, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
