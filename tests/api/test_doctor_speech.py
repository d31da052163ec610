"""The doctor's sentence, on the scripted engine: sound is well, a refusal and silence are not."""

from __future__ import annotations

import httpx

from studio.backends.fake import Finish, Raise, Say
from studio.doctor.speech import spoken
from studio.errors import SpeechLMError
from tests.api.conftest import Service


async def test_a_sentence_that_sounds_is_well(service: Service) -> None:
    service.lm.enqueue(Say(60), Finish())
    async with httpx.AsyncClient(base_url=service.url, timeout=120) as client:
        found = await spoken(client)
    assert found.verdict == "ok" and found.detail.startswith("2.4 s of sound in")


async def test_a_refused_sentence_is_a_fault_with_the_reason(service: Service) -> None:
    for _ in range(2):  # it is tried twice
        service.lm.enqueue(Raise(SpeechLMError("speech.lm_failed", reason="no room")))
    async with httpx.AsyncClient(base_url=service.url, timeout=120) as client:
        found = await spoken(client)
    assert found.verdict == "FAULT" and "no room" in found.detail
