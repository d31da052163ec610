"""Bytes of an audio file to samples, by what is in them; file names are never looked at.

wav, flac, ogg, opus, aiff and mp3 are read by libsndfile in this process; mp4, webm, aac and what
libsndfile refuses by ffmpeg. Whether a clip can be cloned is the business of `check.py`.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import soundfile

from studio.audio import ffmpeg
from studio.audio.resample import to_common_rate
from studio.errors import ClipTooLarge, UnusablePromptSpeech
from studio.speech import Float32

MAX_BYTES = 500_000_000
MAX_DECODED_S = 600.0
"""Sound behind this is not read: a minute of silence takes a few bytes in some formats."""
_MAX_SAMPLES = 600 * 48_000
_BLOCK_VALUES = 1 << 20
_CANCELLED_RATIO = 0.15
"""Of the channels' mean power, what is left when they are averaged: 0.5 of two independent ones, 0 of opposite ones."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceClip:
    """Samples of one clip: float32 [n] mono in [-1, 1].

    sample_rate_hz: of the samples; source_rate_hz: of the file, if that was another.
    duration_s: of the whole file, longer than the samples if it was not read to its end.
    antiphase: the file's channels cancel each other, so the loudest alone was taken.
    """

    samples: Float32
    sample_rate_hz: int
    source_rate_hz: int
    duration_s: float
    antiphase: bool = False

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate_hz

    def part(self, start_s: float, end_s: float) -> ReferenceClip:
        first, last = round(start_s * self.sample_rate_hz), round(end_s * self.sample_rate_hz)
        samples, rate_hz = self.samples[first:last], self.sample_rate_hz
        return ReferenceClip(samples, rate_hz, self.source_rate_hz, len(samples) / rate_hz, self.antiphase)


@dataclass(frozen=True, slots=True)
class _Container:
    """demuxer: ffmpeg's name; sndfile: whether libsndfile is asked first."""

    demuxer: str
    sndfile: bool


_WAV, _MP3 = _Container("wav", True), _Container("mp3", True)
_BY_START = (
    (b"fLaC", _Container("flac", True)), (b"OggS", _Container("ogg", True)), (b"ID3", _MP3), (b"RF64", _WAV),
    (b"RIFX", _WAV), (b"caff", _Container("caf", True)), (b"\x1a\x45\xdf\xa3", _Container("matroska", False)),
)


def _container(data: bytes) -> _Container | None:
    """What the first bytes promise; None if it is nothing that is read."""
    for start, container in _BY_START:
        if data.startswith(start):
            return container
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return _WAV
    if data[:4] == b"FORM" and data[8:12] in (b"AIFF", b"AIFC"):
        return _Container("aiff", True)
    if data[4:8] == b"ftyp":
        return _Container("mov", False)
    if len(data) > 2 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0:
        # layer bits 00 never occur in mp3: they are raw AAC
        return _Container("aac", False) if data[1] & 0xF6 == 0xF0 else _MP3
    return None


def decode_clip(data: bytes, max_bytes: int = MAX_BYTES) -> ReferenceClip:
    """Read an audio file of any rate, depth and number of channels; at most its first ten minutes.

    Channels are averaged unless they cancel each other, an unusual rate becomes 24 or 48 kHz, and a float file louder
    than full scale is turned down to it.

    Raises:  ClipTooLarge; UnusablePromptSpeech if the data are empty, not audio, damaged, not finite,
             take too long to decode, or need ffmpeg where it is missing.
    """
    if len(data) > max_bytes:
        raise ClipTooLarge("clip.too_large", megabytes=len(data) / 1e6, limit=max_bytes / 1e6)
    if not data:
        raise UnusablePromptSpeech("clip.empty")
    container = _container(data)
    if container is None:
        raise UnusablePromptSpeech("clip.not_audio")
    sound = _read(data, container)
    samples = sound.samples
    if not np.isfinite(samples).all():
        raise UnusablePromptSpeech("clip.not_finite")
    if len(samples) == 0:
        raise UnusablePromptSpeech("clip.empty")
    peak = float(np.abs(samples).max())
    samples, rate_hz = to_common_rate(samples / max(peak, 1.0), sound.rate_hz)
    return ReferenceClip(np.clip(samples, -1, 1), rate_hz, sound.rate_hz, sound.duration_s, sound.antiphase)


@dataclass(frozen=True, slots=True, eq=False)
class _Sound:
    """What a decoder gave: float32 [n] at the file's own rate."""

    samples: Float32
    rate_hz: int
    duration_s: float
    antiphase: bool = False


def _read(data: bytes, container: _Container) -> _Sound:
    if container.sndfile:
        try:
            return _read_sndfile(data)
        except soundfile.LibsndfileError as error:
            # wav and mp3 files hold codecs that libsndfile does not know; ffmpeg may
            logger.debug("libsndfile refused a clip: %s", error)
            if not ffmpeg.ffmpeg_available():
                raise UnusablePromptSpeech("clip.broken") from error
    elif not ffmpeg.ffmpeg_available():
        raise UnusablePromptSpeech("clip.ffmpeg_missing")
    try:
        return _read_sndfile(ffmpeg.decode(data, container.demuxer, MAX_DECODED_S))
    except ffmpeg.FfmpegTimeout as error:
        raise UnusablePromptSpeech("clip.decode_timeout") from error
    except (ffmpeg.FfmpegFailed, soundfile.LibsndfileError) as error:
        logger.debug("ffmpeg refused a clip: %s", error)
        raise UnusablePromptSpeech("clip.broken") from error


def _read_sndfile(data: bytes) -> _Sound:
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        samples, left_ratio, loudest = _read_mixed(file)
        antiphase = left_ratio < _CANCELLED_RATIO
        if antiphase:
            file.seek(0)
            samples = _read_channel(file, loudest)
        wanted = _wanted(file)
        # a header may promise any length; believe it only where reading was stopped by us
        total = file.frames if len(samples) >= wanted else len(samples)
        return _Sound(samples, file.samplerate, total / file.samplerate, antiphase)


def _wanted(file: soundfile.SoundFile) -> int:
    return min(round(MAX_DECODED_S * file.samplerate), _MAX_SAMPLES)


def _blocks(file: soundfile.SoundFile) -> Iterator[Float32]:
    """The frames that are wanted, float32 [n, channels] each."""
    wanted, block_samples = _wanted(file), max(1, _BLOCK_VALUES // file.channels)
    while wanted > 0:
        block = file.read(min(wanted, block_samples), dtype="float32", always_2d=True)
        if len(block) == 0:
            return
        yield block
        wanted -= len(block)


def _read_mixed(file: soundfile.SoundFile) -> tuple[Float32, float, int]:
    """The mean of the channels; its power by the mean power of theirs; and which of them is loudest."""
    mixed: list[Float32] = [np.zeros(0, np.float32)]
    mixed_power, powers = 0.0, np.zeros(file.channels)
    for block in _blocks(file):
        mixed.append(block.mean(axis=1, dtype=np.float32))
        with np.errstate(invalid="ignore"):  # what is not finite is refused later
            mixed_power += len(block) * float(mixed[-1].var(dtype=np.float64))
            powers += len(block) * block.var(axis=0, dtype=np.float64)
    left = mixed_power / powers.mean() if powers.any() else 1.0
    return np.concatenate(mixed), left, int(powers.argmax())


def _read_channel(file: soundfile.SoundFile, channel: int) -> Float32:
    return np.concatenate([block[:, channel] for block in _blocks(file)])
