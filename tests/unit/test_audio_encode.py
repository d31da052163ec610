"""Writing sound: exact 16-bit samples, headers that players accept, streams that end with their source."""

import io
import wave
from collections.abc import AsyncGenerator

import numpy as np
import pytest

from studio.audio.decode import decode_clip
from studio.audio.encode import FORMATS, encode_file, encode_stream, needs_ffmpeg, to_pcm, wav_header
from studio.audio.resample import resample
from studio.speech import AudioChunk

SAMPLES = (0.4 * np.sin(np.arange(24_000) * 0.07)).astype(np.float32)


class Source:
    """A stream of chunks that remembers whether it was closed, and can fail at its end."""

    def __init__(self, pieces: list[np.ndarray], error: Exception | None = None) -> None:
        self.pieces, self.error, self.closed = pieces, error, False

    async def chunks(self) -> AsyncGenerator[AudioChunk, None]:
        try:
            for index, piece in enumerate(self.pieces):
                yield AudioChunk(piece, index)
            if self.error:
                raise self.error
        finally:
            self.closed = True


def test_pcm_clips_and_never_scales():
    pcm = np.frombuffer(to_pcm(np.array([0, 0.5, 1, 1.7, -1, -9, 1e-5], np.float32)), "<i2")
    assert pcm.tolist() == [0, 16384, 32767, 32767, -32767, -32767, 0]


async def test_streamed_wav_has_one_header_of_unknown_size_and_the_files_samples():
    source = Source(np.split(SAMPLES, [1, 7_000]))
    pieces = [piece async for piece in encode_stream(source.chunks(), "wav")]
    assert len(pieces) == 3
    data = b"".join(pieces)
    assert data == wav_header(24_000) + to_pcm(SAMPLES)
    assert data[4:8] == data[40:44] == b"\xff\xff\xff\xff" and data[:44].count(b"data") == 1


async def test_streamed_pcm_is_the_same_for_every_split():
    whole = [piece async for piece in encode_stream(Source([SAMPLES]).chunks(), "pcm")]
    parts = [piece async for piece in encode_stream(Source(np.array_split(SAMPLES * 1, 9)).chunks(), "pcm")]
    assert b"".join(whole) == b"".join(parts) == to_pcm(SAMPLES)


async def test_a_stream_without_sound_is_still_a_wav():
    assert [p async for p in encode_stream(Source([]).chunks(), "wav")] == [wav_header(24_000)]


async def test_a_failure_breaks_the_stream_off():
    stream = encode_stream(Source([SAMPLES], RuntimeError("lost")).chunks(), "wav")
    assert len(await anext(stream)) == 44 + 48_000
    with pytest.raises(RuntimeError, match="lost"):
        await anext(stream)


async def test_closing_the_bytes_closes_the_chunks():
    source = Source([SAMPLES, SAMPLES])
    stream = encode_stream(source.chunks(), "pcm")
    await anext(stream)
    await stream.aclose()
    assert source.closed


async def test_a_format_that_cannot_be_streamed_is_refused_before_the_stream_begins():
    source = Source([SAMPLES])
    with pytest.raises(ValueError, match="mp3"):
        await anext(encode_stream(source.chunks(), "mp3"))


def test_wav_file_tells_its_size():
    with wave.open(io.BytesIO(encode_file(SAMPLES, 24_000, "wav"))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        assert file.readframes(file.getnframes()) == to_pcm(SAMPLES)


@pytest.mark.parametrize("audio_format", [f for f in FORMATS if f != "pcm"])
def test_every_file_format_is_read_back_as_the_same_sound(audio_format):
    clip = decode_clip(encode_file(SAMPLES, 24_000, audio_format))
    assert clip.seconds == pytest.approx(1.0, abs=0.1)
    sound = resample(clip.samples, clip.sample_rate_hz, 24_000)
    spectrum, expected = (np.abs(np.fft.rfft(s[2_000:20_000] * np.hanning(18_000))) for s in (sound, SAMPLES))
    assert spectrum.argmax() == expected.argmax()
    assert spectrum.max() == pytest.approx(expected.max(), rel=0.1)


def test_flac_is_lossless_and_an_unknown_format_is_refused():
    clip = decode_clip(encode_file(SAMPLES, 24_000, "flac"))
    assert np.abs(clip.samples - SAMPLES).max() < 1 / 32_000
    with pytest.raises(ValueError, match="wma"):
        encode_file(SAMPLES, 24_000, "wma")


def test_only_aac_needs_ffmpeg():
    assert [f for f in FORMATS if needs_ffmpeg(f)] == ["aac"]


def test_resampling_keeps_level_and_pitch():
    up = resample(SAMPLES, 24_000, 48_000)
    assert len(up) == 48_000
    np.testing.assert_allclose(up[2_000:-2_000:2], SAMPLES[1_000:-1_000], atol=1e-3)
