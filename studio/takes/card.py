"""A take's card: the settings that made it, as JSON beside its sound and inside the file. Trusts no file it reads."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, datetime

import numpy as np
import soundfile

from studio import __version__
from studio.audio.encode import encode_file, to_pcm, wav_header
from studio.errors import InvalidRequest
from studio.speech import SAMPLE_RATE_HZ, Float32
from studio.takes.store import Take

Card = dict[str, object]
FORMATS = ("wav", "flac", "opus", "mp3")
MARK = '{"cosyvoice_studio":'
"""How the JSON begins; it is ASCII in every format, so that a reader need not know the format to find it."""
HEAD_BYTES = 262_144
"""The card stands in front of the sound, so that the head of a file is enough to read it."""
_FMT_END = 36
_SNDFILE = {"flac": ("FLAC", "PCM_16"), "opus": ("OGG", "OPUS"), "mp3": ("MP3", "MPEG_LAYER_III")}


def card_of(take: Take) -> Card:
    """What is written into files and given as the JSON beside them."""
    return {
        "cosyvoice_studio": __version__,
        "take": take.id,
        "made": datetime.fromtimestamp(take.created_s, UTC).isoformat(timespec="seconds"),
        "model": take.model,
        "voice": {"id": take.voice, "name": take.voice_name, "key": take.voice_key},
        "request": json.loads(take.request),
    }


def file_with_card(samples: Float32, card: Card, audio_format: str) -> bytes:
    """A sound file of 16 bits at 24 kHz with the card in its comment; wav has it in LIST/INFO/ICMT before the data."""
    comment = json.dumps(card, ensure_ascii=True, separators=(",", ":"))
    if audio_format == "wav":
        return _wav(to_pcm(samples), comment)
    if audio_format not in _SNDFILE:
        return encode_file(samples, SAMPLE_RATE_HZ, audio_format)
    container, codec = _SNDFILE[audio_format]
    buffer = io.BytesIO()
    with soundfile.SoundFile(buffer, "w", SAMPLE_RATE_HZ, 1, codec, format=container) as file:
        file.comment = comment
        file.write(np.frombuffer(to_pcm(samples), "<i2"))
    return buffer.getvalue()


def _wav(pcm: bytes, comment: str) -> bytes:
    body = b"INFO" + b"".join(
        tag + struct.pack("<I", len(text)) + text + b"\0" * (len(text) % 2)
        for tag, text in ((b"ISFT", b"CosyVoice Studio\0"), (b"ICMT", comment.encode() + b"\0"))
    )
    chunk = b"LIST" + struct.pack("<I", len(body)) + body
    plain = wav_header(SAMPLE_RATE_HZ, len(pcm))
    size = struct.pack("<I", len(plain) + len(chunk) + len(pcm) - 8)
    return b"".join((plain[:4], size, plain[8:_FMT_END], chunk, plain[_FMT_END:], pcm))


def read_card(head: bytes) -> Card:
    """The card in the first bytes of a sound file, or in the JSON beside it.

    Raises: InvalidRequest take.no_card when there is none, or none of a shape that this studio writes.
    """
    text = head[:HEAD_BYTES].decode("utf-8", "replace")
    start = text.find(MARK)
    if start < 0:
        start = 0 if text.lstrip().startswith("{") else -1  # a card that was laid out anew
    try:
        card = json.JSONDecoder().raw_decode(text[start:].lstrip())[0] if start >= 0 else None
        json.dumps(card, ensure_ascii=False, allow_nan=False).encode()  # it must be able to leave again
    except (ValueError, RecursionError):
        card = None
    if not isinstance(card, dict) or not _is_card(card):
        raise InvalidRequest("take.no_card", param="file")
    return card


def _is_card(card: Card) -> bool:
    request, voice = card.get("request"), card.get("voice")
    return (
        "cosyvoice_studio" in card
        and isinstance(request, dict)
        and isinstance(request.get("text"), str)
        and isinstance(request.get("sampling"), dict)
        and isinstance(voice, dict)
        and all(isinstance(value, str) for value in voice.values())
    )
