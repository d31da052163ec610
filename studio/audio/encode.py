"""Samples to the bytes of a format: streams of wav and pcm chunk by chunk, other formats as whole files."""

from __future__ import annotations

import io
import struct
from collections.abc import AsyncGenerator
from contextlib import aclosing

import numpy as np
import soundfile

from studio.audio import ffmpeg
from studio.audio.ffmpeg import ffmpeg_available
from studio.speech import SAMPLE_RATE_HZ, AudioChunk, Float32

__all__ = ["FORMATS", "STREAMED_FORMATS", "encode_file", "encode_stream", "ffmpeg_available", "needs_ffmpeg",
           "to_pcm", "wav_header"]

FORMATS = ("wav", "pcm", "mp3", "opus", "flac", "aac")
STREAMED_FORMATS = ("wav", "pcm")
_UNKNOWN_SIZE = 0xFFFFFFFF
_SNDFILE = {"flac": ("FLAC", "PCM_16"), "mp3": ("MP3", "MPEG_LAYER_III"), "opus": ("OGG", "OPUS")}


def needs_ffmpeg(audio_format: str) -> bool:
    """mp3 and opus are written by libsndfile, so only aac does."""
    return audio_format == "aac"


def to_pcm(samples: Float32) -> bytes:
    """Signed 16-bit little-endian; values beyond [-1, 1] are clipped, nothing is scaled to its peak."""
    return np.rint(np.clip(samples, -1.0, 1.0) * 32767).astype("<i2").tobytes()


def wav_header(sample_rate_hz: int, data_bytes: int | None = None) -> bytes:
    """Header of 16-bit mono wav, 44 bytes; without a size it says that the sound goes on to the end."""
    riff_bytes = _UNKNOWN_SIZE if data_bytes is None else data_bytes + 36
    return b"".join((
        b"RIFF", struct.pack("<I", riff_bytes), b"WAVEfmt ",
        struct.pack("<IHHIIHH", 16, 1, 1, sample_rate_hz, 2 * sample_rate_hz, 2, 16),
        b"data", struct.pack("<I", _UNKNOWN_SIZE if data_bytes is None else data_bytes)))


async def encode_stream(chunks: AsyncGenerator[AudioChunk, None], audio_format: str,
                        sample_rate_hz: int = SAMPLE_RATE_HZ) -> AsyncGenerator[bytes, None]:
    """Bytes of a stream as its chunks come; a failure of the stream breaks it off and is raised.

    Closing it closes the chunks' generator.

    Args:    audio_format: "wav" (one header of unknown size in front) or "pcm" (16-bit little-endian).
    Raises:  ValueError for another format, before anything is taken from the stream.
    """
    if audio_format not in STREAMED_FORMATS:
        raise ValueError(f"{audio_format} cannot be streamed")
    header = wav_header(sample_rate_hz) if audio_format == "wav" else b""
    async with aclosing(chunks):            # a listener who leaves closes the stream at once
        async for chunk in chunks:
            yield header + to_pcm(chunk.samples)
            header = b""
    if header:
        yield header


def encode_file(samples: Float32, sample_rate_hz: int, audio_format: str) -> bytes:
    """A whole file: float32 [n] mono to wav, pcm, flac, mp3, opus (in ogg) or aac (ADTS).

    Raises:  ValueError for an unknown format; FfmpegFailed or FfmpegTimeout for aac.
    """
    pcm = to_pcm(samples)
    if audio_format == "pcm":
        return pcm
    wav = wav_header(sample_rate_hz, len(pcm)) + pcm
    if audio_format == "wav":
        return wav
    if audio_format == "aac":
        return ffmpeg.encode(wav, ["-c:a", "aac", "-b:a", "96k", "-f", "adts"])
    if audio_format not in _SNDFILE:
        raise ValueError(f"{audio_format} is not one of {', '.join(FORMATS)}")
    container, codec = _SNDFILE[audio_format]
    buffer = io.BytesIO()
    soundfile.write(buffer, np.frombuffer(pcm, "<i2"), sample_rate_hz, format=container, subtype=codec)
    return buffer.getvalue()
