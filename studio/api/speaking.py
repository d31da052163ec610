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
from studio.engine.stream import SpeechStream
from studio.errors import InvalidRequest, VoiceNotFound
from studio.library.pronunciations import Pronunciations
from studio.library.store import VoiceStore
from studio.library.voice import Voice, is_unicode
from studio.messages import render
from studio.registry.loaded import Loaded
from studio.registry.models import Models
from studio.speech import SAMPLE_RATE_HZ, Segment, SpokenRow, SynthesisRequest, VoicingRequest
from studio.takes.recorder import TakeRecorder, made_anew
from studio.takes.store import Take
from studio.text.arriving import up_to_a_blank


@dataclass(frozen=True, slots=True)
class Judged:
    """A body with its voice's defaults, that voice, and its text as the voice is to read it."""

    body: SpeechBody
    voice: Voice
    read_as: str


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
    """What all ways in share; each request is for the model that it names. Owner: the event loop of the engines."""

    def __init__(
        self,
        models: Models,
        store: VoiceStore,
        takes: TakeRecorder,
        pronunciations: Pronunciations,
        max_text_chars: int,
    ) -> None:
        self.models = models
        self._store = store
        self._takes = takes
        self._pronunciations = pronunciations
        self._max_text_chars = max_text_chars

    async def request_of(self, body: SpeechBody, client: str) -> tuple[SynthesisRequest, Voice]:
        """What the engine is asked for, and the voice, with whose defaults it is. Raises as `begin`, but QueueFull."""
        loaded = self.models.get(body.model)
        judged = self._judged(loaded, body)
        return await self._asked_for(loaded, judged, client), judged.voice

    async def _asked_for(self, loaded: Loaded, judged: Judged, client: str) -> SynthesisRequest:
        """What encoding a new voice raises."""
        body, read_as = judged.body, judged.read_as
        prompt = await loaded.prompts.of(judged.voice)
        return synthesis_of(body, prompt, client, loaded.model, read_as if read_as != body.input else "")

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

    def _judged(self, loaded: Loaded, body: SpeechBody) -> Judged:
        """The body with its voice's defaults, once all that can be judged before any work is good."""
        voice = voice_of(body, self._store)
        body = with_defaults(body, voice, loaded.model)
        refuse_unmakeable(body, loaded.model)
        read_as = self.respelled(body.input, voice.id)
        loaded.engine.check(read_as)
        return Judged(body, voice, read_as)

    async def expected_s(self, body: SpeechBody) -> float:
        """For how many seconds it would be spoken, by the rates measured lately. Raises as `begin`, but QueueFull."""
        judged = self._judged(self.models.get(body.model), body)
        body, voice = judged.body, judged.voice
        return (await self.preview(body.input, voice.id, body.speed, body.language, body.model))[1]

    async def preview(
        self, text: str, voice: str, speed: float = 1.0, language: str | None = None, model: str = ""
    ) -> tuple[Sequence[Segment], float]:
        """What would be said, and for how many seconds; needs no model that is ready. Raises InvalidRequest.

        voice: whose pronunciations and language count; "", or one that is not there: nobody's.
        """
        loaded = self.models.get(model)
        refuse_unspoken(loaded.model, language)
        known = None
        with suppress(VoiceNotFound):
            known = self._store.find(voice)
        text = self.respelled(text, known.id if known else "")
        return await loaded.engine.preview(text, speed, language_of(language, loaded.model, known))

    async def begin_arriving(
        self, body: SpeechBody, client: str, pieces: AsyncIterator[str], interleaved: bool
    ) -> tuple[SpeechStream, SynthesisRequest]:
        """As `begin`, for a text that is still being written; what is wrong with it is told by the stream."""
        loaded = self.models.get(body.model)
        if interleaved and not loaded.model.interleaved:
            raise InvalidRequest("mode.interleaved", param="interleaved")
        voice = voice_of(body, self._store)
        body = with_defaults(body, voice, loaded.model)
        refuse_unmakeable(body, loaded.model)
        loaded.engine.refuse_unless_ready()
        loaded.engine.refuse_if_full(client)
        prompt = await loaded.prompts.of(voice)
        request = replace(synthesis_of(body, prompt, client, loaded.model), interleaved=interleaved)
        written = Written()
        stream = await loaded.engine.submit_arriving(
            request, self._respelled_words(pieces, voice.id, written)
        )
        if body.keep_take:
            self._takes.record(stream, request, voice, lambda: written.of(request), loaded.name)
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
        loaded = self.models.get(body.model)
        voice = voice_of(body, self._store)
        loaded.engine.refuse_unless_ready()
        loaded.engine.refuse_if_full(client)
        async with loaded.engine.encoder_turn(client):
            found = await clip()
            tokens = await loaded.prompts.speech_tokens_of(found.samples, found.sample_rate_hz)
        rows = (SpokenRow(tokens.tolist()),)
        seed = new_seed() if body.seed is None else body.seed
        prompt = await loaded.prompts.of(voice)
        request = VoicingRequest(rows, prompt, seed, client, body.speed, body.pitch)
        stream = await loaded.engine.voice(request)
        self._takes.record(stream, request, voice, model=loaded.name)
        return stream, request

    async def begin(self, body: SpeechBody, client: str) -> tuple[SpeechStream, SynthesisRequest]:
        """Speech under way, which the caller must close, and what was asked of the engine.

        Raises: InvalidRequest, VoiceNotFound, ModelNotFound and ModelNotLoaded for the body; EngineNotReady,
        EngineDraining, QueueFull; what encoding a new voice raises. Nothing was started then.
        """
        loaded = self.models.get(body.model)
        judged = self._judged(loaded, body)
        loaded.engine.refuse_if_full(client)  # before a clip is encoded for it
        request = await self._asked_for(loaded, judged, client)
        stream = await loaded.engine.submit(request)
        if body.keep_take:
            self._takes.record(stream, request, judged.voice, model=loaded.name)
        return stream, request

    async def begin_again(self, take: Take) -> tuple[SpeechStream, SynthesisRequest | VoicingRequest]:
        """Another take of what made one, by its model, with a seed of its own; the caller must close it.

        Raises as `begin`, and InvalidRequest too if the voice's prompt is another by now.
        """
        loaded = self.models.of_take(take.model)
        loaded.engine.refuse_unless_ready()
        loaded.engine.refuse_if_full(take.client)
        voice = self._store.find(take.voice)
        request = made_anew(take, await loaded.prompts.of(voice), new_seed())
        if isinstance(request, VoicingRequest):
            stream = await loaded.engine.voice(request)
        else:
            stream = await loaded.engine.submit(request)
        self._takes.record(stream, request, voice, model=loaded.name)
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
