"""From the body of a request to sound under way: the one way in for HTTP, jobs, WebSocket and the page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from studio.api.body import (
    SpeechBody,
    language_of,
    new_seed,
    refuse_unmakeable,
    synthesis_of,
    voice_of,
    with_defaults,
)
from studio.api.modes import refuse_unspoken
from studio.audio.decode import ReferenceClip
from studio.engine.engine import Engine
from studio.engine.stream import SpeechStream
from studio.errors import InvalidRequest, VoiceNotFound
from studio.library.prompts import VoicePrompts
from studio.library.pronunciations import Pronunciations
from studio.library.store import VoiceStore
from studio.library.voice import Voice, is_unicode
from studio.messages import render
from studio.speech import SAMPLE_RATE_HZ, Segment, ServedModel, SpokenRow, SynthesisRequest, VoicingRequest
from studio.takes.recorder import TakeRecorder, made_anew
from studio.takes.store import Take
from studio.text.arriving import up_to_a_blank


@dataclass(slots=True)
class Written:
    """A text that arrived, as it was written and as it was read."""

    text: str = ""
    read_as: str = ""

    def read(self, words: str) -> str:
        self.read_as += words
        return words

    def of(self, request: SynthesisRequest) -> SynthesisRequest:
        """The request as if the text had been there from the start."""
        return replace(request, text=self.text, read_as="" if self.read_as == self.text else self.read_as)


class Speaking:
    """What all ways in share. Owner: the event loop of the engine."""

    def __init__(
        self,
        engine: Engine,
        store: VoiceStore,
        prompts: VoicePrompts,
        model: ServedModel,
        takes: TakeRecorder,
        pronunciations: Pronunciations,
        max_text_chars: int,
    ) -> None:
        self.engine = engine
        self.model = model
        self._store = store
        self._prompts = prompts
        self._takes = takes
        self._pronunciations = pronunciations
        self._max_text_chars = max_text_chars

    async def request_of(self, body: SpeechBody, client: str) -> tuple[SynthesisRequest, Voice]:
        """What the engine is asked for, and the voice, with whose defaults it is. Raises as `begin`, but QueueFull."""
        body, voice = self._judged(body)
        prompt = await self._prompts.of(voice)
        read_as = self.respelled(body.input, voice.id)
        return synthesis_of(body, prompt, client, self.model, read_as if read_as != body.input else ""), voice

    def respelled(self, text: str, voice: str) -> str:
        """The text as a voice, by id, is to read it. Raises InvalidRequest if it is too long or broken."""
        self._refuse_long(len(text))  # before anything is done with it
        if not is_unicode(text):
            raise InvalidRequest("text.not_unicode", param="input", field="input")
        return self._pronunciations.respell(text, voice)

    def _refuse_long(self, characters: int) -> None:
        if characters > self._max_text_chars:
            limit = self._max_text_chars
            raise InvalidRequest("text.too_long", param="input", characters=characters, limit=limit)

    def _judged(self, body: SpeechBody) -> tuple[SpeechBody, Voice]:
        """The body with its voice's defaults, once all that can be judged before any work is good."""
        voice = voice_of(body, self._store)
        body = with_defaults(body, voice, self.model)
        refuse_unmakeable(body, self.model)
        self.engine.check(self.respelled(body.input, voice.id))
        return body, voice

    async def expected_s(self, body: SpeechBody) -> float:
        """For how many seconds it would be spoken, by the rates measured lately. Raises as `begin`, but QueueFull."""
        body, voice = self._judged(body)
        return (await self.preview(body.input, voice.id, body.speed, body.language))[1]

    async def preview(
        self, text: str, voice: str, speed: float = 1.0, language: str | None = None
    ) -> tuple[Sequence[Segment], float]:
        """What would be said, and for how many seconds; needs no model. Raises InvalidRequest.

        voice: whose pronunciations and language count; "", or one that is not there: nobody's.
        """
        refuse_unspoken(self.model, language)
        known = None
        with suppress(VoiceNotFound):
            known = self._store.find(voice)
        text = self.respelled(text, known.id if known else "")
        return await self.engine.preview(text, speed, language_of(language, self.model, known))

    async def begin_arriving(
        self, body: SpeechBody, client: str, pieces: AsyncIterator[str], interleaved: bool
    ) -> tuple[SpeechStream, SynthesisRequest]:
        """As `begin`, for a text that is still being written; what is wrong with it is told by the stream."""
        if interleaved and not self.model.interleaved:
            raise InvalidRequest("mode.interleaved", param="interleaved")
        voice = voice_of(body, self._store)
        body = with_defaults(body, voice, self.model)
        refuse_unmakeable(body, self.model)
        self.engine.refuse_unless_ready()
        self.engine.refuse_if_full(client)
        prompt = await self._prompts.of(voice)
        request = replace(synthesis_of(body, prompt, client, self.model), interleaved=interleaved)
        written = Written()
        stream = await self.engine.submit_arriving(request, self._respelled_words(pieces, voice.id, written))
        if body.keep_take:
            self._takes.record(stream, request, voice, lambda: written.of(request))
        return stream, request

    async def _respelled_words(
        self, pieces: AsyncIterator[str], voice: str, written: Written
    ) -> AsyncIterator[str]:
        """Whole words as the voice is to read them, as soon as they are whole. Raises InvalidRequest as `begin`."""
        waiting = ""
        async for piece in pieces:
            written.text += piece
            self._refuse_long(len(written.text))
            ready, waiting = up_to_a_blank(waiting + piece)
            if ready:
                yield written.read(self.respelled(ready, voice))
        if waiting:
            yield written.read(self.respelled(waiting, voice))

    async def begin_conversion(
        self, body: SpeechBody, clip: Callable[[], Awaitable[ReferenceClip]], client: str
    ) -> tuple[SpeechStream, VoicingRequest]:
        """As `begin`, for what a clip says, which is read once its turn has come. Raises what reading it does, too."""
        voice = voice_of(body, self._store)
        self.engine.refuse_unless_ready()
        self.engine.refuse_if_full(client)
        async with self.engine.encoder_turn(client):
            found = await clip()
            tokens = await self._prompts.speech_tokens_of(found.samples, found.sample_rate_hz)
        rows = (SpokenRow(tokens.tolist()),)
        seed = new_seed() if body.seed is None else body.seed
        prompt = await self._prompts.of(voice)
        request = VoicingRequest(rows, prompt, seed, client, body.speed, body.pitch)
        stream = await self.engine.voice(request)
        self._takes.record(stream, request, voice)
        return stream, request

    async def begin(self, body: SpeechBody, client: str) -> tuple[SpeechStream, SynthesisRequest]:
        """Speech under way, which the caller must close, and what was asked of the engine.

        Raises: InvalidRequest and VoiceNotFound for the body; EngineNotReady, EngineDraining, QueueFull; what encoding
        a new voice raises. Nothing was started then.
        """
        self._judged(body)
        self.engine.refuse_if_full(client)  # before a clip is encoded for it
        request, voice = await self.request_of(body, client)
        stream = await self.engine.submit(request)
        if body.keep_take:
            self._takes.record(stream, request, voice)
        return stream, request

    async def begin_again(self, take: Take) -> tuple[SpeechStream, SynthesisRequest | VoicingRequest]:
        """Another take of what made one, with a seed of its own; the caller must close it. Raises as `begin`.

        Raises InvalidRequest too if the voice's prompt is another by now.
        """
        self.engine.refuse_unless_ready()
        self.engine.refuse_if_full(take.client)
        voice = self._store.find(take.voice)
        request = made_anew(take, await self._prompts.of(voice), new_seed())
        if isinstance(request, VoicingRequest):
            stream = await self.engine.voice(request)
        else:
            stream = await self.engine.submit(request)
        self._takes.record(stream, request, voice)
        return stream, request


def stream_headers(stream: SpeechStream, request: SynthesisRequest) -> dict[str, str]:
    """What a reply says of its stream: how to play it, how to get it again, and what was spent on it."""
    choice = stream.choice
    why = render(choice.reason, "en", seconds=choice.seconds, others=choice.others)
    return {
        "X-Request-Id": stream.request_id,
        "X-Seed": str(request.sampling.seed),
        "X-Sample-Rate": str(SAMPLE_RATE_HZ),
        "X-Prebuffer-Ms": str(round(1000 * stream.prebuffer_s)),
        "X-Quality": choice.quality,
        "X-Quality-Reason": why,
        "Cache-Control": "no-store",
        "X-Accel-Buffering": "no",
    }
