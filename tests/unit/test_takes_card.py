"""The settings travel in the file: every format carries them, and no hostile file is believed."""

import io
import json
import wave

import numpy as np
import pytest
import soundfile

from studio.errors import InvalidRequest
from studio.takes.card import FORMATS, HEAD_BYTES, card_of, file_with_card, read_card
from studio.takes.store import Take

SAMPLES = (0.4 * np.sin(np.arange(24_000) * 0.07)).astype(np.float32)
REQUEST = {"text": "“你好” \\ {x}\n" * 300, "sampling": {"seed": 5, "top_p": 0.8}, "speed": 1.0}
TAKE = Take(
    "ab12", "ada", 1.8e9, "v1", "Clara", "k", "m", json.dumps(REQUEST), "x", 5, "[[1]]", 1.0, -20, -3, 9, 0, ""
)  # fmt: skip


@pytest.mark.parametrize("audio_format", FORMATS)
def test_file_of_every_format_gives_its_settings_back(audio_format: str) -> None:
    data = file_with_card(SAMPLES, card_of(TAKE), audio_format)
    assert read_card(data[:HEAD_BYTES]) == card_of(TAKE)
    samples, rate_hz = soundfile.read(io.BytesIO(data), dtype="float32")
    assert rate_hz == 24_000 and len(samples) >= len(SAMPLES)


def test_wav_with_settings_is_a_sound_wav_with_the_same_samples() -> None:
    data = file_with_card(SAMPLES[:999], card_of(TAKE), "wav")
    assert int.from_bytes(data[4:8], "little") == len(data) - 8
    with wave.open(io.BytesIO(data)) as file:
        pcm = np.frombuffer(file.readframes(10_000), "<i2")
    assert np.array_equal(pcm, np.rint(SAMPLES[:999] * 32767).astype(np.int16))


def test_json_beside_the_file_gives_the_same_settings_however_it_is_laid_out() -> None:
    for how in ({"indent": 2}, {"ensure_ascii": False}, {"ensure_ascii": False, "indent": 1, "sort_keys": True}):
        assert read_card(json.dumps(card_of(TAKE), **how).encode()) == card_of(TAKE)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RIFF\xff\xff\xff\xffWAVE",
        file_with_card(SAMPLES, {"comment": "of another program"}, "wav"),
        b'{"cosyvoice_studio":',
        b'{"cosyvoice_studio":' + b"[" * 200_000,
        b'{"cosyvoice_studio":"1","request":{"text":5,"sampling":{}},"voice":{}}',
        b'{"cosyvoice_studio":"1","request":{"text":"a","sampling":{}},"voice":{"id":["x"]}}',
        b'{"request":{"text":"a","sampling":{}},"voice":{}}',
        b'{"cosyvoice_studio":"1","request":{"text":"a","sampling":{"top_p":NaN}},"voice":{}}',
        b'{"cosyvoice_studio":"1","request":{"text":"\\ud800","sampling":{}},"voice":{}}',
        b"[]",
    ],
)
def test_file_without_settings_of_ours_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="no settings"):
        read_card(data)
