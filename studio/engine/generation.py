"""One segment's speech tokens: asked for, judged, and asked for again. Knows no rows and no sound."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from studio.engine.quality import Effort
from studio.errors import NoSpeech, RunawaySpeech, SpeechLMError
from studio.protocols import LmPrompt, LmTurn, SpeechLM
from studio.speech import TOKEN_RATE_HZ, Sampling

RETAKE_SEED_STEP = 1_000_003
"""Between the seeds of a segment's takes; more than any text has segments."""
Offer = Callable[[Sequence[int], bool], None]
IsPlausible = Callable[[int, float], bool]


async def speak_segment(
    lm: SpeechLM,
    prompt: LmPrompt,
    sampling: Sampling,
    request_id: str,
    effort: Effort,
    is_plausible: IsPlausible,
    offer: Offer,
) -> None:
    """Offer the tokens as they come with whether they are the last; if the effort says so, only once they are judged.

    A segment without speech or without an end is made again as often as the effort allows and while none of it was
    offered. is_plausible: of text ids and seconds; an unlikely length counts as no end, but for the last take.

    Raises: NoSpeech, RunawaySpeech, SpeechLMError.
    """
    for take in range(effort.retakes + 1):
        seed = (sampling.seed + RETAKE_SEED_STEP * take) % (1 << 32)
        last_take = take == effort.retakes
        name = f"{request_id}-{take}" if take else request_id
        offered = 0
        judged: list[int] = []

        def pass_on(tokens: Sequence[int], final: bool) -> None:
            nonlocal offered
            offered += len(tokens)
            offer(tokens, final)

        def keep(tokens: Sequence[int], final: bool, judged: list[int] = judged) -> None:
            judged.extend(tokens)

        try:
            await speak_once(
                lm, prompt, replace(sampling, seed=seed), name, keep if effort.judged else pass_on
            )
            if not effort.judged:
                return
            if last_take or is_plausible(len(prompt.text_ids), len(judged) / TOKEN_RATE_HZ):
                offer(judged, True)
                return
        except (NoSpeech, RunawaySpeech):
            if offered or last_take:
                raise


async def speak_once(
    lm: SpeechLM, prompt: LmPrompt | LmTurn, sampling: Sampling, request_id: str, offer: Offer, made: int = 0
) -> None:
    """One take, offered as it comes. made: tokens of the same speech before it. Raises as `speak_segment`."""
    deltas = lm.generate(prompt, sampling, request_id)
    async with contextlib.aclosing(deltas):  # type: ignore[type-var]
        async for delta in deltas:
            made += len(delta.tokens)
            if delta.finish_reason == "length":
                raise RunawaySpeech("speech.runaway")
            if delta.finish_reason is not None and not made:
                raise NoSpeech("speech.none")
            offer(delta.tokens, delta.finish_reason is not None)
            if delta.finish_reason is not None:
                return
    raise SpeechLMError("speech.lm_failed", reason="it ended without a finish reason")
