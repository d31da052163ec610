"""What a request may ask of the loaded model and of its voice; all else is refused with the reason, before any work."""

from __future__ import annotations

from studio.errors import InvalidRequest
from studio.library.voice import is_unicode
from studio.speech import Mode, ServedModel, VoicePrompt
from studio.text.tokenize import END_OF_PROMPT

INSTRUCTIONS_MAX_CHARS = 1000
"""As much as fits beside a long text in the LM's window; OpenAI allows 4096."""


def refuse_unhonoured(model: ServedModel, mode: Mode | None, instructions: str | None) -> None:
    """Refuse what the model cannot do, whatever the voice. Raises InvalidRequest."""
    if instructions and "instruct" not in model.modes:
        raise InvalidRequest("request.instructions", param="instructions")
    if mode is not None and mode not in model.modes:
        raise InvalidRequest("mode.model", param="mode", mode=mode, modes=", ".join(model.modes))
    if mode == "instruct" and not (instructions or "").removesuffix(END_OF_PROMPT).strip():
        raise InvalidRequest("mode.no_instructions", param="instructions")
    if mode not in (None, "instruct") and instructions:
        raise InvalidRequest("mode.not_instruct", param="instructions", mode=mode)
    if not is_unicode(instructions or ""):
        raise InvalidRequest("text.not_unicode", param="instructions", field="instructions")
    if len(instructions or "") > INSTRUCTIONS_MAX_CHARS:
        raise InvalidRequest("mode.long_instructions", param="instructions", limit=INSTRUCTIONS_MAX_CHARS)
    if "<|" in (instructions or "").removesuffix(END_OF_PROMPT):
        raise InvalidRequest("mode.mark", param="instructions")


def refuse_unspoken(model: ServedModel, language: str | None) -> None:
    """Refuse a language that the model does not speak; None and "auto" are for each sentence's script to say."""
    if language and language not in ("auto", *model.languages):
        spoken = ", ".join(model.languages)
        raise InvalidRequest("request.language", param="language", wanted=language[:20], languages=spoken)


def mode_of(model: ServedModel, voice: VoicePrompt, wanted: Mode | None, instructions: str | None) -> Mode:
    """The mode to speak in: the one asked for, else by what there is. Raises InvalidRequest if the voice cannot."""
    able = [mode for mode in voice.modes if mode in model.modes]
    if wanted is None and instructions:
        wanted = "instruct"
    chosen = wanted or next((mode for mode in able if mode not in ("instruct", "conversion")), None)
    if chosen is None or chosen not in able:
        raise InvalidRequest("mode.voice", param="voice", mode=chosen or "zero_shot", modes=", ".join(able) or "-")
    return chosen
