"""Reading reference clips: every format by its content, every bad file with its own error."""

import io
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile

from studio.audio import decode, ffmpeg
from studio.audio.decode import decode_clip
from studio.audio.encode import to_pcm, wav_header
from studio.errors import ClipTooLarge, UnusablePromptSpeech


def tone(seconds: float = 1.0, rate_hz: int = 24_000, hz: float = 330.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate_hz)) / rate_hz)).astype(np.float32)


def file_of(samples: np.ndarray, rate_hz: int = 24_000, container: str = "WAV",
            codec: str | None = None) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate_hz, format=container, subtype=codec)
    return buffer.getvalue()


def through_ffmpeg(samples: np.ndarray, tmp_path: Path, name: str, *codec: str) -> bytes:
    (tmp_path / "in.wav").write_bytes(file_of(samples))
    command = ["ffmpeg", "-loglevel", "error", "-i", tmp_path / "in.wav", *codec, tmp_path / name]
    subprocess.run(command, check=True)
    return (tmp_path / name).read_bytes()


def refusal(data: bytes, **limits: int) -> str:
    with pytest.raises((UnusablePromptSpeech, ClipTooLarge)) as refused:
        decode_clip(data, **limits)
    assert refused.value.message("en") and refused.value.message("zh")
    return refused.value.key


def pitch_hz(samples: np.ndarray, rate_hz: int) -> float:
    return float(np.abs(np.fft.rfft(samples * np.hanning(len(samples)))).argmax() * rate_hz / len(samples))


@pytest.mark.parametrize(("container", "codec"), [
    ("WAV", "PCM_U8"), ("WAV", "PCM_16"), ("WAV", "PCM_24"), ("WAV", "PCM_32"), ("WAV", "FLOAT"),
    ("WAV", "DOUBLE"), ("WAV", "ULAW"), ("WAVEX", "PCM_16"), ("RF64", "PCM_16"), ("AIFF", "PCM_16"),
    ("FLAC", "PCM_16"), ("FLAC", "PCM_24"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")])
def test_every_kind_of_file_gives_its_sound(container, codec):
    clip = decode_clip(file_of(tone(), container=container, codec=codec))
    assert clip.sample_rate_hz == 24_000 and clip.samples.dtype == np.float32
    assert clip.seconds == pytest.approx(1.0, abs=0.06)
    assert pitch_hz(clip.samples, 24_000) == pytest.approx(330, abs=2)
    assert np.abs(clip.samples[2400:-2400]).max() == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize(("name", "codec"), [("a.m4a", ["-c:a", "aac"]), ("a.webm", ["-c:a", "libopus"]),
                                             ("a.aac", ["-c:a", "aac"])])
def test_phone_and_browser_recordings_are_read_through_ffmpeg(tmp_path, name, codec):
    clip = decode_clip(through_ffmpeg(tone(), tmp_path, name, *codec))
    assert clip.seconds == pytest.approx(1.0, abs=0.1)
    assert pitch_hz(clip.samples, clip.sample_rate_hz) == pytest.approx(330, abs=2)


def test_stereo_is_averaged():
    left, right = tone(hz=300), tone(hz=500)
    clip = decode_clip(file_of(np.stack([left, right], 1), codec="FLOAT"))
    np.testing.assert_allclose(clip.samples, (left + right) / 2, atol=1e-6)


def test_channels_that_cancel_each_other_give_the_louder_one():
    clip = decode_clip(file_of(np.stack([-0.8 * tone(), tone()], 1), codec="FLOAT"))
    assert clip.antiphase and clip.part(0, 0.5).antiphase
    np.testing.assert_allclose(clip.samples, tone(), atol=1e-6)
    assert not decode_clip(file_of(np.stack([tone(), 0 * tone()], 1))).antiphase


def test_channels_of_a_phone_recording_cancel_too(tmp_path):
    stereo = np.stack([tone(), -tone()], 1)
    assert decode_clip(through_ffmpeg(stereo, tmp_path, "a.m4a", "-c:a", "alac")).antiphase


@pytest.mark.parametrize(("rate_hz", "kept_hz"), [
    (8_000, 24_000), (11_025, 24_000), (16_000, 16_000), (44_100, 44_100), (44_101, 48_000),
    (96_000, 48_000), (192_000, 48_000)])
def test_odd_rates_are_brought_to_common_ones(rate_hz, kept_hz):
    clip = decode_clip(file_of(tone(1.0, rate_hz), rate_hz))
    assert clip.sample_rate_hz == kept_hz and clip.source_rate_hz == rate_hz
    assert len(clip.samples) == pytest.approx(kept_hz, abs=2)
    assert pitch_hz(clip.samples, kept_hz) == pytest.approx(330, abs=2)


def test_a_wav_that_was_streamed_by_us_is_read_whole():
    assert decode_clip(wav_header(24_000) + to_pcm(tone(2.0))).seconds == 2.0


def test_a_wav_cut_off_in_its_sound_gives_what_is_there():
    clip = decode_clip(file_of(tone(2.0))[:60_044])
    assert clip.seconds == clip.duration_s == 1.25


def test_a_float_file_louder_than_full_scale_is_turned_down():
    clip = decode_clip(file_of(tone() * 8, codec="FLOAT"))
    np.testing.assert_allclose(clip.samples, tone() * 2, atol=1e-4)


def test_sound_behind_the_limit_is_not_read_but_counted(monkeypatch):
    assert decode.MAX_DECODED_S == 600
    monkeypatch.setattr(decode, "MAX_DECODED_S", 2.0)
    clip = decode_clip(file_of(np.zeros(80_000, np.float32), 16_000, "FLAC"))
    assert clip.seconds == 2.0 and clip.duration_s == 5.0


@pytest.mark.parametrize("data", [b"", file_of(np.zeros(0, np.float32))], ids=["no bytes", "no samples"])
def test_an_empty_file_is_told(data):
    assert refusal(data) == "clip.empty"


@pytest.mark.parametrize("data", [
    b"hello, I am a text" * 50, b"\x89PNG\r\n\x1a\n" + bytes(500), b"%PDF-1.7" + bytes(500),
    bytes(4000), b"R", b"RIFF\x24\0\0\0AVI LIST" + bytes(400), b"#EXTM3U\nhttp://127.0.0.1/x.wav\n",
    b"ffconcat version 1.0\nfile /etc/passwd\n"])
def test_what_is_not_audio_is_refused_before_any_decoder_sees_it(data, monkeypatch):
    monkeypatch.setattr(soundfile, "SoundFile", None)
    monkeypatch.setattr(ffmpeg, "decode", None)
    assert refusal(data) == "clip.not_audio"


@pytest.mark.parametrize("data", [
    file_of(tone())[:30], b"RIFF" + struct.pack("<I", 36) + b"WAVEfmt " + bytes(400),
    b"fLaC" + bytes(400), b"OggS" + bytes(400), b"\0\0\0\x20ftypM4A " + bytes(400),
    b"\x1a\x45\xdf\xa3" + bytes(400)],
    ids=["cut wav header", "zero wav header", "flac", "ogg", "m4a", "webm"])
def test_a_broken_header_is_told(data):
    assert refusal(data) == "clip.broken"


def test_a_float_file_with_nan_or_infinity_is_refused():
    for value in (np.nan, np.inf):
        samples = tone()
        samples[500] = value
        assert refusal(file_of(samples, codec="FLOAT")) == "clip.not_finite"


def test_more_bytes_than_allowed_are_refused():
    assert refusal(file_of(tone()), max_bytes=40_000) == "clip.too_large"


def test_without_ffmpeg_wav_and_flac_work_and_m4a_says_what_is_missing(tmp_path, monkeypatch):
    m4a = through_ffmpeg(tone(), tmp_path, "a.m4a", "-c:a", "aac")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    wav, flac = file_of(tone()), file_of(tone(), container="FLAC")
    assert decode_clip(wav).seconds == decode_clip(flac).seconds == 1.0
    assert refusal(m4a) == "clip.ffmpeg_missing"
    assert refusal(b"fLaC" + bytes(400)) == "clip.broken"


def test_a_decoder_that_hangs_is_stopped_and_told(tmp_path, monkeypatch):
    hanging = tmp_path / "ffmpeg"
    hanging.write_text("#!/bin/sh\nexec sleep 60\n")
    hanging.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(ffmpeg, "TIMEOUT_S", 0.2)
    assert refusal(b"\x1a\x45\xdf\xa3" + bytes(400)) == "clip.decode_timeout"
