"""The merged vocabulary of the speech LM and the prompt made of it. No torch, no vLLM.

Ids: the S speech codes, then the end ids, then sos and task, then the text ids, shifted. The head gives scores over
speech and end ids only, so what the model draws is a speech token or an end id without any translation. CosyVoice3
keeps sos and task among its 200 ids behind the codes, all of which end speech.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

END_IDS = 3
"""Version 2: end of speech, an unused one, and the fill of streamed text; any of them ends plain speech."""
CONTROL_IDS = 2
END_IDS_3 = 200
"""Version 3: sos, end of speech, task, fill, and unused ones; any of them ends plain speech. No control ids follow."""


@dataclass(frozen=True, slots=True)
class SpeechLmLayout:
    """Where each kind of id lies. speech_codes: S, officially 6561; text_ids: rows of the text embedding."""

    speech_codes: int
    text_ids: int
    version: int = 2

    @classmethod
    def of(cls, config: Any) -> SpeechLmLayout:
        """What a converted folder's config.json says, as vLLM gives it."""
        return cls(config.speech_codes, config.text_ids, getattr(config, "version", 2))

    @property
    def head_width(self) -> int:
        return self.speech_codes + (END_IDS if self.version == 2 else END_IDS_3)

    @property
    def end_ids(self) -> tuple[int, ...]:
        return tuple(range(self.speech_codes, self.head_width))

    @property
    def fill_id(self) -> int:
        return self.speech_codes + (2 if self.version == 2 else 3)

    @property
    def sos_id(self) -> int:
        return self.head_width if self.version == 2 else self.speech_codes

    @property
    def task_id(self) -> int:
        return self.head_width + 1 if self.version == 2 else self.speech_codes + 2

    @property
    def first_text_id(self) -> int:
        return self.head_width + (CONTROL_IDS if self.version == 2 else 0)

    @property
    def vocabulary(self) -> int:
        return self.first_text_id + self.text_ids

    def prompt_ids(
        self, prompt_text_ids: Iterable[int], text_ids: Iterable[int], speech_tokens: Iterable[int]
    ) -> list[int]:
        """[sos] prompt text, text, [task] prompt speech, as ids of the merged vocabulary.

        Raises: ValueError naming the first id that the checkpoint does not have.
        """
        return [
            self.sos_id,
            *(self._text(i) for i in prompt_text_ids),
            *(self._text(i) for i in text_ids),
            self.task_id,
            *(self._speech(i) for i in speech_tokens),
        ]

    def turn_ids(self, parts: Iterable[tuple[str, Sequence[int]]], whole: bool) -> list[int]:
        """[sos] parts in their order, [task] if the text is whole; see protocols.LmTurn. Raises as `prompt_ids`."""
        read = {"text": self._text, "speech": self._speech}
        ids = [self.sos_id, *(read[kind](i) for kind, part in parts for i in part)]
        return [*ids, self.task_id] if whole else ids

    def _text(self, i: int) -> int:
        if not 0 <= i < self.text_ids:
            raise ValueError(f"text id {i} is not below {self.text_ids}")
        return self.first_text_id + int(i)

    def _speech(self, i: int) -> int:
        if not 0 <= i < self.speech_codes:
            raise ValueError(f"speech token {i} is not below {self.speech_codes}")
        return int(i)


@dataclass(frozen=True, slots=True)
class TokenBounds:
    """How many speech tokens a text may become, for each of its ids (the text to speak, not the prompt's).

    The defaults are the official model's; a checkpoint whose text ids stand for more or less sound has its own.
    most_is_end: speech of the greatest number ends there, as upstream's does; else it has run away, an error.
    """

    least_ratio: float = 2.0
    most_ratio: float = 20.0
    most_is_end: bool = True

    def of(self, text_ids: int) -> tuple[int, int]:
        """Least and greatest number of speech tokens for so many text ids."""
        return int(self.least_ratio * text_ids), int(self.most_ratio * text_ids)

    def within(self, text_ids: int, room: int) -> tuple[int, int]:
        """The same where no more than room tokens fit. Raises ValueError where that is less than the least."""
        least, most = self.of(text_ids)
        if not text_ids or room < max(1, least):
            raise ValueError(f"a text of {text_ids} ids needs at least {least} tokens of speech, and {room} fit")
        return least, min(most, room)
