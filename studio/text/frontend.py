"""From typed text to segments of token ids, by the rules of the loaded checkpoint; refuses what cannot be spoken."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from studio.checkpoint import FrontendKind
from studio.errors import InvalidRequest
from studio.speech import Segment, SynthesisRequest
from studio.text import normalize as normalizing
from studio.text import pauses
from studio.text.gather import gather
from studio.text.language import language_of
from studio.text.segment import SegmentLimits, cut
from studio.text.tokenize import COSYVOICE3_SOUNDS, END_OF_PROMPT, load_tokenizer, text_ids

CACHED_TEXTS = 32
CACHED_TRANSCRIPTS = 256
OPENING_3 = "You are a helpful assistant."
"""What every prompt of CosyVoice3 begins with."""
TAG_3 = re.compile("|".join((normalizing.TAG.pattern, *map(re.escape, COSYVOICE3_SOUNDS))))
"""Tags that CosyVoice3 knows: those of version 2, and phones and parts of pinyin that set a pronunciation."""


class TextFrontend:
    """The text side of one checkpoint. Thread-safe; the first use loads grammars and lexicon (a second or two)."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        kind: FrontendKind,
        languages: tuple[str, ...],
        max_text_chars: int,
        limits: SegmentLimits | None = None,
        sound_tags: tuple[str, ...] = (),
        version: int = 2,
    ) -> None:
        self._tokenizer = tokenizer
        self._kind = kind
        self._read: Callable[[str], str] = _spoken if kind == "spoken" else str
        self._languages = languages
        self._max_text_chars = max_text_chars
        self._sound_tags = sound_tags
        self._version = version
        self._tags = normalizing.TAG if version == 2 else TAG_3
        self._limits = limits or SegmentLimits()
        self._language = ""
        self._readings = {"": self}
        self._transcript_ids = lru_cache(maxsize=CACHED_TRANSCRIPTS)(self._read_transcript)
        self._cache_segments()

    def _cache_segments(self) -> None:
        # An edge asks about a text more than once: to check it, to submit it, to say what the player must hold.
        self._cached_segments = lru_cache(maxsize=CACHED_TEXTS)(self._cut)

    def reading(self, language: str) -> TextFrontend:
        """The same, but texts are read by the rules of a language; "": each sentence by those of its script."""
        if language not in self._readings:
            other = copy(self)
            other._language = language
            other._cache_segments()
            self._readings[language] = other
        return self._readings[language]

    @classmethod
    def load(
        cls,
        tokenizer_folder: Path,
        kind: FrontendKind,
        languages: tuple[str, ...],
        max_text_chars: int,
        sound_tags: tuple[str, ...] = (),
        version: int = 2,
    ) -> TextFrontend:
        """The front end over a checkpoint's tokenizer folder. Raises CheckpointError."""
        tokenizer = load_tokenizer(tokenizer_folder, version)
        return cls(tokenizer, kind, languages, max_text_chars, sound_tags=sound_tags, version=version)

    def check(self, text: str) -> None:
        """Refuse at once what needs no grammar to be refused. Raises InvalidRequest text.*."""
        if not text.strip():
            raise InvalidRequest("text.empty", param="input")
        if len(text) > self._max_text_chars:
            raise InvalidRequest(
                "text.too_long", param="input", characters=len(text), limit=self._max_text_chars
            )
        if normalizing.only_marks(normalizing.clean(pauses.without_pauses(text))):
            raise InvalidRequest("text.only_marks", param="input")
        self._check_tags(text)
        if word := self._unreadable_word(text):
            # Left out in silence, it would make the speech shorter than the text.
            languages = ", ".join(self._languages)
            raise InvalidRequest("text.unsupported_word", param="input", word=word, languages=languages)

    def _check_tags(self, text: str) -> None:
        for found in normalizing.TAG.findall(text):
            if found.startswith("<|"):
                raise InvalidRequest("text.mark", param="input", mark=found)
            if found not in self._sound_tags:
                tags = " ".join(self._sound_tags) or "-"
                raise InvalidRequest("text.tag", param="input", tag=found, tags=tags)

    def segments(self, text: str) -> tuple[Segment, ...]:
        """The segments to speak, at least one, none without ids. Raises InvalidRequest text.*."""
        self.check(text)
        return self._cached_segments(text)

    def _cut(self, text: str) -> tuple[Segment, ...]:
        segments: list[Segment] = []
        silence_s: float | None = None
        for part in pauses.parts(text):
            if part.pause_s is not None:
                silence_s = (silence_s or 0.0) + part.pause_s
            for segment in self._spoken_segments(part.text):
                segments.append(replace(segment, pause_s=silence_s))
                silence_s = None
        if not segments:
            raise InvalidRequest("text.unsupported", param="input", languages=", ".join(self._languages))
        segments[-1] = replace(segments[-1], pause_after_s=silence_s or 0.0)
        return tuple(segments)

    def _spoken_segments(self, text: str) -> list[Segment]:
        normalised = self._normalised(text, self._language)
        if self._kind == "spoken":
            pieces = cut(normalised, self._limits)
        else:
            length = len if normalizing.is_chinese(normalised, self._language) else self._token_count
            pieces = gather(normalised, length, language=self._language)
        return [s for s in (self._segment(piece.strip()) for piece in pieces) if s.token_ids]

    def _normalised(self, text: str, language: str = "") -> str:
        text = normalizing.normalize(text, self._tags, language)
        official = self._kind == "raw" and normalizing.is_chinese(text, language)
        return normalizing.as_official_chinese(text) if official else text

    def _token_count(self, text: str) -> int:
        return len(text_ids(self._tokenizer, text))

    def prompt_ids(self, request: SynthesisRequest) -> tuple[int, ...]:
        """Ids before the text: the transcript of the prompt speech, whole, or the instruction with its end mark.

        An instruction stays as typed: the model was trained on it so. CosyVoice3 wants its own opening before all. A
        transcript is read by its script: the language of a request is that of its text.
        """
        if request.mode == "instruct":
            instruction = request.instructions.removesuffix(END_OF_PROMPT)
            opening = f"{OPENING_3} " if self._version == 3 else ""
            return text_ids(self._tokenizer, opening + instruction.strip() + END_OF_PROMPT)
        opening_ids = text_ids(self._tokenizer, OPENING_3 + END_OF_PROMPT) if self._version == 3 else ()
        return opening_ids + (self._transcript_ids(request.voice.prompt_text) if request.mode == "zero_shot" else ())

    def _read_transcript(self, transcript: str) -> tuple[int, ...]:
        if not (text := self._normalised(transcript)):
            return ()
        # No mark is added to a transcript, as in training.
        return text_ids(self._tokenizer, text) if self._kind == "raw" else self._segment(text).token_ids

    def lead(self, prompt_ids: Sequence[int]) -> int:
        """How many of the prompt's ids stand before all turns of the interleaved mode: CosyVoice3's opening."""
        end = self._tokenizer.token_to_id(END_OF_PROMPT)
        return prompt_ids.index(end) + 1 if self._version == 3 and end is not None and end in prompt_ids else 0

    def word_ids(self, words: str) -> tuple[int, ...]:
        """Ids of a part of a text that was cut between words: read as a whole text is, but for a final mark.

        Raises: InvalidRequest text.*
        """
        self._check_tags(words)
        if word := self._unreadable_word(words):
            raise InvalidRequest(
                "text.unsupported_word", param="input", word=word, languages=", ".join(self._languages)
            )
        read = self._read(self._normalised(words, self._language))
        # The blank before a word is part of its first id, and normalising takes those at the ends away.
        before = " " if words[:1].isspace() and not read[:1].isspace() else ""
        return text_ids(self._tokenizer, before + read) if read else ()

    def warm(self) -> None:
        """Load what the first request would load."""
        normalizing.warm()
        self.segments("One, two. 一，二。")

    def _unreadable_word(self, text: str) -> str | None:
        """The first word in a script that the spoken front end has no sounds for; raw text goes to the model."""
        if self._kind == "raw":
            return None
        words = () if text.isascii() else text.split()
        return next((word[:40] for word in words if any(map(_is_foreign_letter, word))), None)

    def _segment(self, piece: str) -> Segment:
        # A piece that stops without a mark is read on as if words were missing.
        ends = ".!?。！？…" if self._kind == "spoken" else ".!?。！？…;:；：、”\""
        text = piece if piece[-1] in ends else piece.rstrip(" ,;:，、；：") + self._full_stop(piece)
        read = self._read(text)
        return Segment(text, text_ids(self._tokenizer, read) if read else ())

    def _full_stop(self, text: str) -> str:
        return "。" if (self._language or language_of(text)) in ("zh", "ja") else "."


def _is_foreign_letter(character: str) -> bool:
    """A letter that is neither Latin nor Chinese, such as Cyrillic, kana or Arabic."""
    name = unicodedata.name(character, "") if character.isalpha() else "LATIN"
    return not name.startswith(
        ("LATIN", "CJK", "FULLWIDTH LATIN", "MODIFIER", "FEMININE", "MASCULINE", "MICRO")
    )


def _spoken(text: str) -> str:
    from studio.text.spoken import spoken  # reads the lexicon, which checkpoints of kind raw do not need

    return spoken(text)
