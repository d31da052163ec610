"""Keeps what listeners heard to its end as takes, and gives back what is needed to voice one again."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import asdict, fields, replace
from typing import Any

from studio.errors import InvalidRequest
from studio.library.voice import Voice
from studio.protocols import KeepsSound
from studio.speech import Float32, Sampling, SynthesisRequest, VoicePrompt
from studio.takes.store import Take, TakeStore

logger = logging.getLogger(__name__)

NOT_KEPT = ("voice", "client", "spoken")
"""Fields of a request that a take keeps elsewhere, or not at all."""


class TakeRecorder:
    """Joins streams with the store of takes. model: the name of the model that speaks."""

    def __init__(self, store: TakeStore, model: str) -> None:
        self._store = store
        self._model = model

    def record(self, stream: KeepsSound, request: SynthesisRequest, voice: Voice) -> None:
        """Make a take of a stream once all of it was read; what is stopped, fails or is a replay makes none."""
        if request.spoken or not self._store.keeps_history:
            return

        async def heard(samples: Float32) -> None:
            try:
                await self.keep(stream, samples, request, voice)
            except Exception:  # a full disk is told in several ways, by libsndfile as a RuntimeError
                # The listener has all of the sound already; that must not turn it into an error.
                logger.exception("take %s could not be kept", stream.request_id)

        stream.when_read(heard)

    async def keep(
        self, stream: KeepsSound, samples: Float32, request: SynthesisRequest, voice: Voice, line: str = ""
    ) -> Take:
        """Keep the whole sound of a stream as a take. Raises ClientError take.no_room."""
        return await asyncio.to_thread(
            self._store.add,
            stream.request_id,
            request.client,
            samples,
            stream.spoken,
            without_voice(request),
            voice=voice.id,
            voice_name=voice.name or "",
            voice_key=request.voice.key,
            model=self._model,
            line=line,
        )


def without_voice(request: SynthesisRequest) -> dict[str, object]:
    """A request as JSON can hold it; every field that is added to requests is kept without a change here."""
    bare = replace(request, voice=None, spoken=())  # type: ignore[arg-type]  # a voice's arrays need not be copied
    return {name: value for name, value in asdict(bare).items() if name not in NOT_KEPT}


def request_again(take: Take, prompt: VoicePrompt) -> SynthesisRequest:
    """The request that voices a take's tokens again. Raises InvalidRequest if the voice's prompt is another now."""
    if prompt.key != take.voice_key:
        raise InvalidRequest("take.other_voice", param="take")
    kept = json.loads(take.request)
    sampling = Sampling(**_known(Sampling, kept.pop("sampling")))
    spoken = tuple(tuple(segment) for segment in json.loads(take.spoken))
    again = _known(SynthesisRequest, kept)
    return SynthesisRequest(voice=prompt, client=take.client, sampling=sampling, spoken=spoken, **again)


def _known(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Of what an older or newer studio kept, the fields that there are here."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in values.items() if name in names}
