"""Clips as files named by content hash: nothing half written is ever seen under its name. Knows no voices."""

from __future__ import annotations

import hashlib
import io
import os
import re
import uuid
from pathlib import Path

import numpy as np
import soundfile

from studio.errors import InvalidRequest
from studio.speech import Float32

CLIP_ID = re.compile(r"[0-9a-f]{32}")


class ClipFiles:
    """The folder of clips. A clip that never changes may be shared by voices, cached and copied."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def file(self, clip: str) -> Path:
        return self._folder / f"{clip}.flac"

    def write(self, samples: Float32, rate_hz: int) -> str:
        """Keep float32 [n] as 16-bit FLAC; gives its hash."""
        buffer = io.BytesIO()
        soundfile.write(buffer, np.clip(samples, -1.0, 1.0), rate_hz, format="FLAC", subtype="PCM_16")
        clip = _hash(buffer.getvalue())
        self._keep(clip, buffer.getvalue())
        return clip

    def take(self, data: bytes, clip: str) -> None:
        """Keep the bytes of such a file under the hash that they have to have. Raises InvalidRequest if not."""
        if _hash(data) != clip:
            raise InvalidRequest("bundle.broken", param="bundle", file=f"{clip}.flac")
        self._keep(clip, data)

    def _keep(self, clip: str, data: bytes) -> None:
        target = self.file(clip)
        if not target.exists():
            partial = target.with_suffix(f".{uuid.uuid4().hex}.part")
            partial.write_bytes(data)
            os.replace(partial, target)

    def samples(self, clip: str) -> tuple[Float32, int]:
        """The clip as float32 [n] and its rate in Hz."""
        samples, rate_hz = soundfile.read(self.file(clip), dtype="float32")
        return samples, rate_hz

    def drop(self, clip: str) -> None:
        self.file(clip).unlink(missing_ok=True)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
