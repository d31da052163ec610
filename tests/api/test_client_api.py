"""The official gradio_client by the page's stable names: the same speech as over HTTP, errors as sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gradio_client
import httpx
import pytest
import soundfile
from gradio_client.exceptions import AppError

from tests.api.test_speech import SAMPLES, WORDS, body


@pytest.fixture
def client(service, tmp_path: Path) -> Iterator[gradio_client.Client]:
    made = gradio_client.Client(service.url, download_files=str(tmp_path), verbose=False)
    yield made
    made.close()


def test_names_are_stable_and_english(client: gradio_client.Client) -> None:
    names = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    assert {"/speak", "/preview_text", "/list_voices"} <= names.keys()


def test_speech_is_that_of_the_same_request_over_http(service, client: gradio_client.Client) -> None:
    file = client.predict(WORDS, "Ada", 1.0, "balanced", 7, "wav", api_name="/speak")
    samples, rate_hz = soundfile.read(file, dtype="int16")
    plain = httpx.post(f"{service.url}/v1/audio/speech", json=body(seed=7)).content
    assert (len(samples), rate_hz) == (SAMPLES, 24000) and samples.tobytes() == plain


def test_preview_and_voices_are_those_of_the_service(client: gradio_client.Client) -> None:
    found = client.predict("one [pause 1s] two", "", api_name="/preview_text")
    assert found["characters"] == 18 and len(found["said"]) == 2 and found["seconds"] > 1
    assert [voice["name"] for voice in client.predict(api_name="/list_voices")] == ["Ada"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((" ", "Ada", 1.0, "balanced", None, "wav"), "no text to speak"),
        ((WORDS, "Nobody", 1.0, "balanced", None, "wav"), "no voice named"),
        ((WORDS, "Ada", 9.0, "balanced", None, "wav"), "speed"),
        ((WORDS, "Ada", 1.0, "balanced", None, "midi"), "not supported"),
    ],
)
def test_what_is_wrong_is_said_in_the_sentences_of_the_routes(
    service, client: gradio_client.Client, given: tuple, sentence: str
) -> None:
    with pytest.raises(AppError, match=sentence):
        client.predict(*given, api_name="/speak")
    assert service.is_idle()
