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


def test_turns_of_streamed_text_are_sos_and_parts_and_task_once_the_text_is_whole():
    layout = SpeechLmLayout(speech_codes=243, text_ids=512)
    parts = (("text", (7, 8)), ("speech", (3,)), ("text", (0,)))
    assert layout.turn_ids(parts, whole=False) == [246, 255, 256, 3, 248]
    assert layout.turn_ids(parts, whole=True) == [246, 255, 256, 3, 248, 247]
    assert layout.fill_id == 245
    with pytest.raises(ValueError, match="speech token 243"):
        layout.turn_ids([("speech", (243,))], whole=False)


def test_cosyvoice3_has_its_control_ids_among_the_two_hundred_that_end_speech():
    layout = SpeechLmLayout(6561, 151936, version=3)
    assert (layout.sos_id, layout.task_id, layout.fill_id) == (6561, 6563, 6564)
    assert layout.end_ids == tuple(range(6561, 6761))
    assert layout.first_text_id == layout.head_width == 6761
    assert layout.vocabulary == 6761 + 151936
    assert layout.prompt_ids([5], [7], [2]) == [6561, 6766, 6768, 6563, 2]


def test_bounds_are_two_and_twenty_tokens_for_each_text_id():
    assert TokenBounds().of(9) == (18, 180)
    assert TokenBounds(0.5, 8).of(9) == (4, 72)


@pytest.mark.parametrize(("room", "most"), [(5000, 4000), (4000, 4000), (700, 700), (400, 400)])
def test_bounds_are_cut_to_the_room_there_is(room: int, most: int):
    assert TokenBounds().within(200, room) == (400, most)


@pytest.mark.parametrize(("text_ids", "room"), [(200, 399), (0, 5000), (0, 0)])
def test_room_for_less_than_the_least_is_refused(text_ids: int, room: int):
    with pytest.raises(ValueError, match=f"{text_ids} ids needs at least {2 * text_ids} tokens.*{room} fit"):
        TokenBounds().within(text_ids, room)
