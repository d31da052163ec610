"""What a request to speak says: its fields, what they mean for the loaded model, and all that is wrong with them.

Every way in uses these: HTTP, jobs, WebSocket, the page and scripts. Nothing is started here.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from studio.api.modes import mode_of, refuse_unhonoured, refuse_unspoken
from studio.audio.encode import FORMATS, ffmpeg_available, needs_ffmpeg
from studio.audio.retime import MAX_PITCH
from studio.errors import InvalidRequest
from studio.library.store import VoiceStore
from studio.library.voice import Voice
from studio.speech import Sampling, ServedModel, SynthesisRequest, VoicePrompt

SEED_MAX = 2**32 - 1


class VoiceRef(BaseModel):
    id: str


class SpeechBody(BaseModel):
    """OpenAI's fields; `pitch` (semitones), `mode`, `language`, `quality`, `seed` and the sampling fields are ours.

    keep_take: false for an audition, which leaves no take in the caller's history. Unknown fields are refused, not
    ignored.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    input: str
    voice: str | VoiceRef
    model: str = ""
    response_format: str | None = None
    speed: Annotated[float, Field(ge=0.25, le=4.0)] = 1.0
    pitch: Annotated[float, Field(ge=-MAX_PITCH, le=MAX_PITCH)] = 0.0
    instructions: str | None = None
    mode: Literal["zero_shot", "cross_lingual", "instruct", "preset"] | None = None
    language: str | None = None
    stream_format: Literal["audio", "sse"] = "audio"
    quality: Literal["auto", "fast", "balanced", "best"] = "balanced"
    seed: int | None = None
    temperature: Annotated[float | None, Field(ge=0.05, le=2.0)] = None
    top_p: Annotated[float | None, Field(ge=0.05, le=1.0)] = None
    top_k: Annotated[int | None, Field(ge=1, le=200)] = None
    repetition_window: Annotated[int | None, Field(ge=0, le=50)] = None
    keep_take: bool = True


def new_seed() -> int:
    return secrets.randbelow(SEED_MAX)


def sampling_of(body: SpeechBody, defaults: Sampling) -> Sampling:
    """The request's sampling; a missing seed is drawn, and told in a reply header so that the take can be repeated."""
    seed = new_seed() if body.seed is None else body.seed
    if not 0 <= seed <= SEED_MAX:
        raise InvalidRequest("request.seed", param="seed")
    named: dict[str, Any] = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "window": body.repetition_window,
    }
    return replace(defaults, seed=seed, **{k: v for k, v in named.items() if v is not None})


def format_of(body: SpeechBody) -> str:
    """The wanted format; mp3 where none is named, as OpenAI has it."""
    wanted = body.response_format or "mp3"
    if wanted not in FORMATS:
        raise InvalidRequest(
            "request.format", param="response_format", format=wanted[:20], formats=", ".join(FORMATS)
        )
    if needs_ffmpeg(wanted) and not ffmpeg_available():
        raise InvalidRequest("request.format_needs_ffmpeg", param="response_format", format=wanted)
    return wanted


def voice_of(body: SpeechBody, store: VoiceStore) -> Voice:
    """The voice of the request, by name or id. Raises InvalidRequest where none is named, VoiceNotFound."""
    name = body.voice if isinstance(body.voice, str) else body.voice.id
    if not name.strip():
        raise InvalidRequest("voice.missing", param="voice")
    return store.find(name)


def with_defaults(body: SpeechBody, voice: Voice, model: ServedModel) -> SpeechBody:
    """The request with the voice's own defaults for what it does not name, but for those that could not be honoured."""
    unnamed = {
        n: v
        for n, v in voice.defaults.items()
        if n in body.__class__.model_fields.keys() - body.model_fields_set
    }
    if "instruct" not in model.modes or body.mode not in (None, "instruct"):
        unnamed.pop("instructions", None)
    if unnamed.get("language") not in model.languages:
        unnamed.pop("language", None)
    return body.model_copy(update=unnamed)


def refuse_unmakeable(body: SpeechBody, model: ServedModel) -> None:
    """Refuse what the model cannot do in any voice. Raises InvalidRequest."""
    refuse_unhonoured(model, body.mode, body.instructions)
    refuse_unspoken(model, body.language)
    sampling_of(body, model.sampling)


def language_of(named: str | None, model: ServedModel, voice: Voice | None = None) -> str:
    """By whose rules a text is read: as named, else the voice's own language; "": each sentence by its script."""
    wanted = named or (voice.defaults.get("language") if voice else None) or ""
    return wanted if wanted in model.languages else ""


def synthesis_of(
    body: SpeechBody, prompt: VoicePrompt, client: str, model: ServedModel, read_as: str = ""
) -> SynthesisRequest:
    """What the engine is asked for; `body` has its voice's defaults. Raises InvalidRequest if the voice cannot."""
    mode = mode_of(model, prompt, body.mode, body.instructions)
    sampling = sampling_of(body, model.sampling)
    return SynthesisRequest(
        body.input,
        prompt,
        sampling,
        client,
        mode=mode,
        instructions=body.instructions or "",
        speed=body.speed,
        pitch=body.pitch,
        read_as=read_as,
        quality=None if body.quality == "auto" else body.quality,
        language=language_of(body.language, model),
    )
