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
        data = buffer.getvalue()
        clip = hashlib.sha256(data).hexdigest()[:32]
        target = self.file(clip)
        if not target.exists():
            partial = target.with_suffix(f".{uuid.uuid4().hex}.part")
            partial.write_bytes(data)
            os.replace(partial, target)
        return clip

    def samples(self, clip: str) -> tuple[Float32, int]:
        """The clip as float32 [n] and its rate in Hz."""
        samples, rate_hz = soundfile.read(self.file(clip), dtype="float32")
        return samples, rate_hz

    def drop(self, clip: str) -> None:
        self.file(clip).unlink(missing_ok=True)
