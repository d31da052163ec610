"""The library by gradio_client's stable names."""

from __future__ import annotations

from collections.abc import Iterator

import gradio_client
import pytest
from gradio_client.exceptions import AppError


@pytest.fixture
def client(service) -> Iterator[gradio_client.Client]:
    made = gradio_client.Client(service.url, verbose=False)
    yield made
    made.close()


def test_voice_is_designed_edited_deleted_and_restored_by_name(service, client: gradio_client.Client) -> None:
    made = client.predict({"Ada": 1.0}, "Ada", {"pitch": -2}, "Deep", "agreed", api_name="/design_voice")
    assert (made["name"], made["defaults"]) == ("Deep", {"pitch": -2.0})
    assert client.predict("Deep", {"tags": ["low"]}, api_name="/edit_voice")["tags"] == ["low"]
    client.predict("Deep", api_name="/delete_voice")
    assert [v.name for v in service.store.all()] == ["Ada"]
    assert client.predict(made["id"], api_name="/restore_voice")["name"] == "Deep"


def test_what_is_wrong_is_said_in_the_sentences_of_the_routes(client: gradio_client.Client) -> None:
    for name, given, sentence in (
        ("/delete_voice", ("Nobody",), "no voice named"),
        ("/edit_voice", ("Ada", {"defaults": {"speed": 9}}), "speed"),
        ("/edit_voice", ("Ada", {"origin": "starter"}), "origin"),
        ("/design_voice", ({"Ada": 1.0}, "Ada", {}, "X", " "), "agrees"),
    ):
        with pytest.raises(AppError, match=sentence):
            client.predict(*given, api_name=name)
