"""Words of a sound by faster-whisper (CTranslate2) on the CPU: loaded at the first use, one sound at a time."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from studio.errors import AsrUnavailable
from studio.protocols import HeardWord, Transcript
from studio.speech import Float32


class WhisperRecogniser:
    """model: a folder, or a name that faster-whisper fetches into `folder`. Owner: one thread."""

    def __init__(self, model: str, folder: Path, threads: int) -> None:
        self._name = model
        self._folder = folder
        self._threads = threads or max(1, (os.cpu_count() or 2) // 2)
        self._model: Any = None

    def transcribe(self, samples: Float32) -> Transcript:
        """Greedy and at temperature 0, so that equal sounds give equal words.

        Raises:  AsrUnavailable if the model cannot be loaded.
        """
        model = self._loaded()
        segments, about = model.transcribe(
            samples,
            language=None if model.model.is_multilingual else "en",
            beam_size=1,
            temperature=0.0,
            condition_on_previous_text=False,
            word_timestamps=True,
        )
        words = [
            HeardWord(word.word, float(word.start), float(word.end), float(word.probability))
            for segment in segments
            for word in segment.words or ()
        ]
        return Transcript(tuple(words), about.language)

    def _loaded(self) -> Any:
        if self._model is None:
            try:
                self._model = self._load()
            except Exception as error:  # the hub, CTranslate2 and the tokenizer each raise their own
                raise AsrUnavailable("asr.broken", model=self._name, reason=str(error)[:200]) from error
        return self._model

    def _load(self) -> Any:
        # CTranslate2's converters import torch if it is there, which costs seconds and is used for nothing here.
        if "torch" not in sys.modules:
            sys.modules["torch"] = None  # type: ignore[assignment]
        from faster_whisper import WhisperModel

        is_folder = Path(self._name).is_dir()
        return WhisperModel(
            self._name,
            device="cpu",
            compute_type="int8",
            cpu_threads=self._threads,
            download_root=str(self._folder),
            local_files_only=is_folder,
        )
