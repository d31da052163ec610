"""The merged vocabulary and the prompt made of it."""

from __future__ import annotations

import pytest

from studio.models.speech_lm.layout import SpeechLmLayout, TokenBounds

OFFICIAL = SpeechLmLayout(speech_codes=6561, text_ids=151936)


def test_official_ids_lie_where_the_checkpoint_has_them():
    assert OFFICIAL.end_ids == (6561, 6562, 6563)
    assert OFFICIAL.head_width == 6564
    assert (OFFICIAL.sos_id, OFFICIAL.task_id, OFFICIAL.first_text_id) == (6564, 6565, 6566)
    assert OFFICIAL.vocabulary == 6564 + 2 + 151936


def test_prompt_is_sos_prompt_text_text_task_prompt_speech():
    layout = SpeechLmLayout(speech_codes=243, text_ids=512)
    assert layout.prompt_ids([0, 511], [7], [242, 0]) == [246, 248, 248 + 511, 255, 247, 242, 0]


def test_prompt_without_voice_is_sos_text_task():
    layout = SpeechLmLayout(speech_codes=243, text_ids=512)
    assert layout.prompt_ids([], [7], []) == [246, 255, 247]


@pytest.mark.parametrize("text", [[512], [-1]])
def test_text_id_that_the_checkpoint_lacks_is_named(text):
    with pytest.raises(ValueError, match=f"text id {text[0]}"):
        SpeechLmLayout(243, 512).prompt_ids([], text, [])


@pytest.mark.parametrize("speech", [[243], [-1]])
def test_end_ids_are_no_prompt_speech(speech):
    with pytest.raises(ValueError, match=f"speech token {speech[0]}"):
        SpeechLmLayout(243, 512).prompt_ids([], [1], speech)


def test_bounds_are_two_and_twenty_tokens_for_each_text_id():
    assert TokenBounds().of(9) == (18, 180)
    assert TokenBounds(0.5, 8).of(9) == (4, 72)
