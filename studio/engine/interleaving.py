"""The LM's interleaved mode: five text ids, then up to fifteen speech tokens, in turns, while the text still arrives.

Pure: no I/O, no model. It says what the LM is fed next; who feeds it is the caller's business (`sources.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from studio.protocols import FILL, LmTurn

TEXT_IDS, SPEECH_TOKENS = 5, 15
"""How the LM was trained to take turns."""
MOST_TOKENS_PER_ID = 20


class Interleaving:
    """What was fed to the LM for one text, and the turn that comes next. Owner: one request.

    prompt_text_ids and prompt_speech are fed first, in the same turns; `lead` of the ids stand before all turns. If the
    text ends before the prompt speech was fed, the rest of that is left out.
    """

    def __init__(self, prompt_text_ids: Sequence[int], prompt_speech: Sequence[int], lead: int = 0) -> None:
        self._parts: list[tuple[str, tuple[int, ...]]] = []
        self._feed("text", prompt_text_ids[:lead])
        self._text = list(prompt_text_ids[lead:])
        self._prompt_speech = list(prompt_speech)
        self._offered = 0
        self._ended = False
        self._wants_text = not len(prompt_speech)
        self._until_fill = SPEECH_TOKENS - len(prompt_speech) % SPEECH_TOKENS
        self._drawn: list[int] = []

    def offer(self, text_ids: Sequence[int]) -> None:
        """More of the text."""
        self._text.extend(text_ids)
        self._offered += len(text_ids)

    def end_text(self) -> None:
        """The text is whole now."""
        self._ended = True

    def next_turn(self) -> LmTurn | None:
        """What to ask of the LM now; None while it must wait for text. After each but the last one call `take`."""
        while self._prompt_speech and len(self._text) >= TEXT_IDS:
            self._feed_text()
            self._feed("speech", self._prompt_speech[:SPEECH_TOKENS])
            del self._prompt_speech[:SPEECH_TOKENS]
        if self._ended:
            self._feed("text", self._text)
            self._text.clear()
            most = max(SPEECH_TOKENS, MOST_TOKENS_PER_ID * self._offered - len(self._drawn))
            return LmTurn(tuple(self._parts), True, most, tuple(self._drawn))
        if self._prompt_speech:
            return None
        if self._wants_text:
            if len(self._text) < TEXT_IDS:
                return None
            self._feed_text()
            self._wants_text = False
        return LmTurn(tuple(self._parts), False, self._until_fill, tuple(self._drawn))

    def take(self, tokens: Sequence[int]) -> None:
        """What the LM drew in its turn, up to the fill that it drew itself or that was due."""
        self._feed("speech", tokens)
        self._drawn += [*tokens, FILL]
        self._wants_text = True
        self._until_fill = SPEECH_TOKENS

    def _feed_text(self) -> None:
        self._feed("text", self._text[:TEXT_IDS])
        del self._text[:TEXT_IDS]

    def _feed(self, kind: str, ids: Sequence[int]) -> None:
        if len(ids):
            self._parts.append((kind, tuple(int(i) for i in ids)))
