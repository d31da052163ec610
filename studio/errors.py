"""Every error a user, a client or the engine can meet, each with its code, HTTP status and whether to try again.

StudioError
  ClientError
    InvalidRequest        400  a field is missing, empty, too long or out of range
    Unauthorized          401  no key, or a wrong one
      AdminRefused        401  no session of an administrator, a wrong password, or a sign-in that proves nothing
    AdminBusy             409  settings are being changed already
    AdminLocked           429  too many wrong passwords
    CrossSite             403  a form or script of another site
    VoiceNotFound         404  no voice of that name or id
    NotFound              404  no take, script, line, job or listening test of that id that is the caller's
    ModelNotFound         404  no model of that name is known
    VoiceConflict         409  a voice of that name exists
    ListeningConflict     409  the listening test is in no state for this
    ClipTooLarge          413  more bytes or seconds than allowed
    RequestTooLarge       413  a body of more bytes than any request needs
    UnusablePromptSpeech  422  the clip cannot be cloned, and why
  CapacityError
    QueueFull             429  come back in retry_after_s
    EngineNotReady        503  still starting, or restarting
    EngineDraining        503  shutting down
    ModelNotLoaded        503  a known model that is not loaded, or not yet
  SynthesisError
    NoSpeech              500  the model gave no speech token
    RunawaySpeech         500  the model did not end within the allowed length
    SpeechLMError         500  the speech LM failed for this request
    Token2WavError        500  the sound of this request could not be made
  EngineDead              503  the engine process ended; it is being started again
    OutOfMemory           503  it ended since its memory was full and nothing was left to be given up
  AsrUnavailable          501  no recogniser of words is set up, or it cannot be loaded
  RequestAborted          499  the listener left; counted, never shown
  CheckpointError         500  a weight file that does not fit, and the first key of it
  HubError                502  the checkpoint cannot be fetched from its hub
  ProviderError           502  the OpenID provider does not answer, or not as one does
  SettingsError           500  a setting with an unknown name or an impossible value; start-up stops
"""

from __future__ import annotations

from studio.messages import render


class StudioError(Exception):
    """Base of all. `key` names the sentence in the catalogue, `values` fill it, `param` is the field it is about."""

    http_status = 500
    retryable = False
    code = "internal_error"
    kind = "server_error"

    def __init__(
        self, key: str, *, param: str | None = None, retry_after_s: float | None = None, **values: object
    ) -> None:
        self.key = key
        self.param = param
        self.values = values
        self.retry_after_s = retry_after_s
        super().__init__(key)

    def message(self, language: str = "en") -> str:
        return render(self.key, language, **self.values)

    def __str__(self) -> str:
        return self.message("en")

    def __reduce__(self) -> tuple[object, tuple[object, ...], dict[str, object]]:
        # Errors cross process borders; Exception's own pickling would lose the keyword arguments.
        return (_rebuild, (type(self), self.key), dict(self.__dict__))


def _rebuild(kind: type[StudioError], key: str) -> StudioError:
    return kind(key)


class ClientError(StudioError):
    http_status = 400
    code = "invalid_request"
    kind = "invalid_request_error"


class InvalidRequest(ClientError):
    pass


class Unauthorized(ClientError):
    http_status = 401
    code = "invalid_api_key"
    kind = "authentication_error"


class AdminRefused(Unauthorized):
    code = "admin_only"


class AdminBusy(ClientError):
    http_status = 409
    code = "admin_busy"


class AdminLocked(ClientError):
    http_status = 429
    code = "admin_locked"
    retryable = True


class CrossSite(ClientError):
    http_status = 403
    code = "cross_site"
    kind = "permission_error"


class VoiceNotFound(ClientError):
    http_status = 404
    code = "voice_not_found"


class NotFound(ClientError):
    http_status = 404
    code = "not_found"


class ModelNotFound(ClientError):
    http_status = 404
    code = "model_not_found"


class VoiceConflict(ClientError):
    http_status = 409
    code = "voice_exists"


class ListeningConflict(ClientError):
    http_status = 409
    code = "listening_conflict"


class ClipTooLarge(ClientError):
    http_status = 413
    code = "clip_too_large"


class RequestTooLarge(ClientError):
    http_status = 413
    code = "request_too_large"


class UnusablePromptSpeech(ClientError):
    http_status = 422
    code = "unusable_prompt_speech"


class CapacityError(StudioError):
    http_status = 503
    retryable = True
    code = "engine_unavailable"


class QueueFull(CapacityError):
    http_status = 429
    code = "queue_full"
    kind = "rate_limit_error"


class EngineNotReady(CapacityError):
    code = "engine_not_ready"


class EngineDraining(CapacityError):
    code = "engine_draining"


class ModelNotLoaded(CapacityError):
    code = "model_not_loaded"
    retryable = False


class SynthesisError(StudioError):
    code = "synthesis_failed"


class NoSpeech(SynthesisError):
    code = "no_speech"
    retryable = True


class RunawaySpeech(SynthesisError):
    code = "runaway_speech"
    retryable = True


class SpeechLMError(SynthesisError):
    code = "speech_lm_failed"


class Token2WavError(SynthesisError):
    code = "token2wav_failed"


class EngineDead(StudioError):
    http_status = 503
    retryable = True
    code = "engine_restarting"


class OutOfMemory(EngineDead):
    code = "out_of_memory"


class AsrUnavailable(StudioError):
    http_status = 501
    code = "asr_unavailable"


class RequestAborted(StudioError):
    http_status = 499
    code = "aborted"


class CheckpointError(StudioError):
    code = "checkpoint"


class HubError(StudioError):
    http_status = 502
    code = "hub"


class ProviderError(StudioError):
    http_status = 502
    code = "openid_provider"


class SettingsError(StudioError):
    code = "settings"
