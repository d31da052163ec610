"""Makes the speech LM known to vLLM; loaded by entry point in every process that vLLM starts."""

from __future__ import annotations


def register() -> None:
    """Register the class itself: of a class given by name vLLM would learn the traits in one more process."""
    from vllm import ModelRegistry

    from studio.models.speech_lm.invariant_norms import cover_norms
    from studio.models.speech_lm.model import CosyVoice2SpeechLM

    cover_norms()
    if CosyVoice2SpeechLM.__name__ not in ModelRegistry.get_supported_archs():
        ModelRegistry.register_model(CosyVoice2SpeechLM.__name__, CosyVoice2SpeechLM)
