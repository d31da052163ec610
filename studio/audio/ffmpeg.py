"""The one place that runs ffmpeg: bounded in time and length, under file names of ours only."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

TIMEOUT_S = 20.0
MAX_DECODED_BYTES = 500_000_000
"""Ten minutes of stereo at 96 kHz."""


class FfmpegFailed(Exception):
    """ffmpeg ended with an error; its words are for the log only."""


class FfmpegTimeout(Exception):
    """ffmpeg was stopped after TIMEOUT_S."""


def ffmpeg_available() -> bool:
    return shutil.which("ffmpeg") is not None


def decode(data: bytes, demuxer: str, max_s: float) -> bytes:
    """The first audio track as a float32 wav of its own rate and channels, at most max_s and MAX_DECODED_BYTES long.

    Args:    demuxer: ffmpeg's name of the container. It is forced, for ffmpeg's own guessing also knows
             playlists, which name other files and addresses.
    Raises:  FfmpegFailed, FfmpegTimeout.
    """
    # a file rather than a pipe: mp4 keeps its index at the end
    with tempfile.TemporaryDirectory(prefix="studio-clip-") as folder:
        source, target = Path(folder, "clip"), Path(folder, "clip.wav")
        source.write_bytes(data)
        _run(["-protocol_whitelist", "file", "-f", demuxer, "-i", str(source), "-map", "0:a:0",
              "-t", str(max_s), "-fs", str(MAX_DECODED_BYTES), "-c:a", "pcm_f32le", "-f", "wav", str(target)])
        return target.read_bytes()


def encode(wav: bytes, arguments: list[str]) -> bytes:
    """A wav file in another format; arguments name codec and container.

    Raises:  FfmpegFailed, FfmpegTimeout.
    """
    return _run(["-f", "wav", "-i", "pipe:0", *arguments, "pipe:1"], wav)


def _run(arguments: list[str], given: bytes | None = None) -> bytes:
    command = ["ffmpeg", "-hide_banner", "-loglevel", "error", "-threads", "1", *arguments]
    try:
        done = subprocess.run(
            command, input=given or b"", capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise FfmpegTimeout(f"ffmpeg stopped after {TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        raise FfmpegFailed(done.stderr.decode(errors="replace")[-500:])
    return done.stdout
