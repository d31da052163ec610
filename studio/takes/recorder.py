"""Keeps what listeners heard to its end as takes, and gives back what is needed to voice one again."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from typing import Any

from studio.errors import InvalidRequest
from studio.library.voice import Voice
from studio.protocols import KeepsSound
from studio.speech import Float32, Sampling, SpokenRow, SynthesisRequest, VoicePrompt, VoicingRequest
from studio.takes.store import CONVERSION, Take, TakeStore

logger = logging.getLogger(__name__)

NOT_KEPT = ("voice", "client")
"""Fields of a request that a take keeps elsewhere, or not at all."""


class TakeRecorder:
    """Joins streams with the store of takes. model: the name of the model that speaks where no other is named."""

    def __init__(self, store: TakeStore, model: str) -> None:
        self._store = store
        self._model = model

    def record(
        self,
        stream: KeepsSound,
        request: SynthesisRequest | VoicingRequest,
        voice: Voice,
        whole: Callable[[], SynthesisRequest] | None = None,
        model: str = "",
    ) -> None:
        """Make a take of a stream once all of it was read; what is stopped or fails makes none.

        whole: the request as it is by then, where its text arrives while it is spoken.
        """
        if not self._store.keeps_history:
            return

        async def heard(samples: Float32) -> None:
            try:
                await self.keep(stream, samples, whole() if whole else request, voice, model=model)
            except Exception:  # a full disk is told in several ways, by libsndfile as a RuntimeError
                # The listener has all of the sound already; that must not turn it into an error.
                logger.exception("take %s could not be kept", stream.request_id)

        stream.when_read(heard)

    async def keep(
        self,
        stream: KeepsSound,
        samples: Float32,
        request: SynthesisRequest | VoicingRequest,
        voice: Voice,
        line: str = "",
        model: str = "",
    ) -> Take:
        """Keep the whole sound of a stream as a take. Raises ClientError take.no_room."""
        return await asyncio.to_thread(
            self._store.add,
            stream.request_id,
            request.client,
            samples,
            stream.spoken,
            as_kept(request),
            voice=voice.id,
            voice_name=voice.name or "",
            voice_key=request.voice.key,
            model=model or self._model,
            line=line,
        )


def as_kept(request: SynthesisRequest | VoicingRequest) -> dict[str, object]:
    """A request as JSON can hold it; every field that is added to requests to speak is kept without a change here.

    Of a conversion the tokens are in the take's own; its shape is that of a request to speak, without text.
    """
    if isinstance(request, VoicingRequest):
        sound = {"sampling": {"seed": request.seed}, "speed": request.speed, "pitch": request.pitch}
        return {"text": "", "mode": CONVERSION, **sound}
    bare = replace(request, voice=None)  # type: ignore[arg-type]  # a voice's arrays need not be copied
    return {name: value for name, value in asdict(bare).items() if name not in NOT_KEPT}


def voiced_again(take: Take, prompt: VoicePrompt) -> VoicingRequest:
    """The request that voices a take's tokens again. Raises InvalidRequest if the voice's prompt is another now."""
    _refuse_other(take, prompt)
    kept = json.loads(take.request)
    rows = tuple(SpokenRow(**row) for row in json.loads(take.spoken))
    return VoicingRequest(rows, prompt, take.seed, take.client, kept.get("speed", 1.0), kept.get("pitch", 0.0))


def made_anew(take: Take, prompt: VoicePrompt, seed: int) -> SynthesisRequest | VoicingRequest:
    """The request for another take of what made one. Raises InvalidRequest if the voice's prompt is another now.

    A text that arrived while it was spoken is there now, so it is spoken as a whole one.
    """
    if take.is_conversion:
        return replace(voiced_again(take, prompt), seed=seed)
    _refuse_other(take, prompt)
    kept = json.loads(take.request)
    sampling = replace(Sampling(**_known(Sampling, kept.pop("sampling"))), seed=seed)
    again = _known(SynthesisRequest, kept) | {"interleaved": False}
    return SynthesisRequest(voice=prompt, client=take.client, sampling=sampling, **again)


def _refuse_other(take: Take, prompt: VoicePrompt) -> None:
    if prompt.key != take.voice_key:
        raise InvalidRequest("take.other_voice", param="take")


def _known(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Of what an older or newer studio kept, the fields that there are here."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in values.items() if name in names}
