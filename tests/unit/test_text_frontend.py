"""Typed text to segments of ids, and what is refused before any work."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from studio.backends.fake import voice_prompt
from studio.errors import CheckpointError, InvalidRequest
from studio.speech import SynthesisRequest
from studio.text import normalize as normalizing
from studio.text.frontend import TextFrontend
from studio.text.tokenize import COSYVOICE2_SPECIAL, load_tokenizer, text_ids

WORDS = ["?", "hello", "world", "three", ".", ",", "你", "好", "。"]


@pytest.fixture
def frontend() -> TextFrontend:
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return TextFrontend(tokenizer, "raw", ("en", "zh"), max_text_chars=100)


def test_text_becomes_segments_with_ids_and_a_final_mark(frontend: TextFrontend) -> None:
    (segment,) = frontend.segments("hello world 3")
    assert segment.text == "hello world three."
    assert segment.token_ids == (1, 2, 3, 4)


def test_pauses_are_taken_out_of_the_text_and_kept_in_seconds(frontend: TextFrontend) -> None:
    segments = frontend.segments("[pause 0.5s] hello [pause 250ms][pause:1s] world. hello [PAUSE 2 s]")
    assert [(s.text, s.pause_s, s.pause_after_s) for s in segments] == [
        ("hello.", 0.5, 0.0),
        ("world. hello.", 1.25, 2.0),
    ]


@pytest.mark.parametrize("pause", ["[pause]", "[pause long]", "[pause 11s]", "[pause 0s]", "[pause 1", "[pause -1s]"])
def test_pause_that_cannot_be_read_is_refused_and_never_read_aloud(frontend: TextFrontend, pause: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        frontend.segments(f"hello {pause} world")
    assert (caught.value.key, caught.value.param) == ("text.pause_bad", "input")


def test_pauses_together_are_bounded(frontend: TextFrontend) -> None:
    with pytest.raises(InvalidRequest) as caught:
        frontend.segments("hello" + "[pause 10s]" * 7)
    assert caught.value.key == "text.pauses_long"


def test_prompt_text_is_read_by_the_same_rules(frontend: TextFrontend) -> None:
    assert frontend.prompt_ids(SynthesisRequest("", voice_prompt("", 9, "hello 3."))) == (1, 3, 4)
    assert frontend.prompt_ids(SynthesisRequest("", voice_prompt("", 9, ""))) == ()


def test_transcript_is_read_once_for_all_requests(frontend: TextFrontend, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = frontend.prompt_ids(SynthesisRequest("one", voice_prompt("anna", 9, "hello 3.")))
    monkeypatch.setattr(normalizing, "normalize", no_grammar)
    assert frontend.prompt_ids(SynthesisRequest("two", voice_prompt("bob", 9, "hello 3."))) == ids
    assert frontend.reading("zh").prompt_ids(SynthesisRequest("", voice_prompt("", 9, "hello 3."))) == ids


def no_grammar(*_: object) -> str:
    raise AssertionError("it was read already")


def test_cross_lingual_and_preset_speech_have_no_text_before_them(frontend: TextFrontend) -> None:
    voice = voice_prompt("", 9, "hello.")
    assert frontend.prompt_ids(SynthesisRequest("", voice, mode="cross_lingual")) == ()
    assert frontend.prompt_ids(SynthesisRequest("", voice, mode="preset")) == ()


@pytest.mark.parametrize("typed", ["hello 3", "hello 3<|endofprompt|>"])
def test_instruction_stays_as_typed_and_its_end_mark_is_appended_once(qwen_folder: Path, typed: str) -> None:
    """Upstream's page forgot the mark, so that the instruction was spoken (CosyVoice#1752)."""
    tokenizer = load_tokenizer(qwen_folder)
    frontend = TextFrontend(tokenizer, "raw", ("en",), max_text_chars=100)
    ids = frontend.prompt_ids(SynthesisRequest("", voice_prompt(""), mode="instruct", instructions=typed))
    assert [tokenizer.id_to_token(n) for n in ids] == ["hello", "Ġ", "3", "<|endofprompt|>"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", "text.empty"),
        (" \n\t", "text.empty"),
        ("?!...", "text.only_marks"),
        ("😀", "text.only_marks"),
        ("[pause 1s]", "text.only_marks"),
        ("a" * 101, "text.too_long"),
    ],
)
def test_bad_text_is_refused_with_its_sentence(frontend: TextFrontend, text: str, key: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        frontend.segments(text)
    assert (caught.value.key, caught.value.param) == (key, "input")
    assert caught.value.message("en") and caught.value.message("zh")


def byte_letter(byte: int) -> str:
    """The letter that stands for a byte in byte-level merges."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return chr(byte) if byte in printable else chr(256 + [b for b in range(256) if b not in printable].index(byte))


@pytest.fixture
def qwen_folder(tmp_path: Path) -> Path:
    letters = [byte_letter(byte) for byte in range(256)]
    words = [*letters, "he", "ll", "hell", "hello", "Ġw"]
    (tmp_path / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(words)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nh e\nl l\nhe ll\nhell o\nĠ w\n")
    return tmp_path


def test_qwen2_files_are_read_by_its_rules(qwen_folder: Path) -> None:
    tokenizer = load_tokenizer(qwen_folder)
    assert [tokenizer.id_to_token(n) for n in text_ids(tokenizer, "hello w12")] == ["hello", "Ġw", "1", "2"]
    assert tokenizer.decode(list(text_ids(tokenizer, "héllo 你好"))) == "héllo 你好"


def test_sound_tags_of_cosyvoice2_are_one_id_each_behind_qwens_own(qwen_folder: Path) -> None:
    tokenizer = load_tokenizer(qwen_folder)
    first = tokenizer.token_to_id("<|endoftext|>")
    ids = text_ids(tokenizer, "hello [breath]<|endofprompt|>")
    assert ids[-2:] == (first + 4, first + 3)
    assert tokenizer.token_to_id("[mn]") == first + 2 + len(COSYVOICE2_SPECIAL)


def test_missing_and_broken_tokenizer_files_are_named(qwen_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing"):
        load_tokenizer(tmp_path / "nowhere")
    (qwen_folder / "vocab.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"vocab\.json cannot be read"):
        load_tokenizer(qwen_folder)
    (qwen_folder / "merges.txt").unlink()
    with pytest.raises(CheckpointError, match=r"merges\.txt is missing"):
        load_tokenizer(qwen_folder)


@pytest.mark.parametrize("text", ["Hello. Привет, мир. Goodbye.", "שלום עולם", "مرحبا", "ひらがな", "hello สวัสดี"])
def test_word_in_a_script_without_sounds_is_named_and_never_left_out(text: str) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    spoken = TextFrontend(tokenizer, "spoken", ("en", "zh"), max_text_chars=100)
    with pytest.raises(InvalidRequest) as caught:
        spoken.check(text)
    assert caught.value.key == "text.unsupported_word" and caught.value.values["word"] in text


@pytest.mark.parametrize("text", ["Café naïve, 3 ºC?", "你好，world！", "ｆｕｌｌ width", "ˈaccent µm"])
def test_latin_and_chinese_with_their_signs_pass(text: str) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    TextFrontend(tokenizer, "spoken", ("en", "zh"), max_text_chars=100).check(text)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [("hello [laughter] you", "text.tag", "[laughter]"), ("a <|endofprompt|> b", "text.mark", "<|endofprompt|>")],
)
def test_tag_that_the_model_does_not_know_is_refused_and_named(
    frontend: TextFrontend, text: str, key: str, value: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        frontend.check(text)
    assert caught.value.key == key and value in caught.value.message("en")


def test_tag_that_the_model_knows_and_ordinary_brackets_pass() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    frontend = TextFrontend(tokenizer, "raw", ("en",), max_text_chars=100, sound_tags=("[breath]",))
    frontend.check("hello [breath] you")
    frontend.check("hello [note] you")


@pytest.fixture
def third(qwen_folder: Path) -> TextFrontend:
    return TextFrontend(load_tokenizer(qwen_folder, 3), "raw", ("en", "zh"), max_text_chars=100, version=3)


def test_cosyvoice3_has_its_opening_before_transcript_instruction_and_text(third: TextFrontend) -> None:
    voice = voice_prompt("", 9, "hello.")

    def read(**how: str) -> str:
        return third._tokenizer.decode(third.prompt_ids(SynthesisRequest("", voice, **how)), skip_special_tokens=False)

    opening = "You are a helpful assistant."
    assert read() == f"{opening}<|endofprompt|>hello."
    assert read(mode="cross_lingual") == f"{opening}<|endofprompt|>"
    assert read(mode="instruct", instructions="hello") == f"{opening} hello<|endofprompt|>"


def test_opening_of_cosyvoice3_stands_before_all_turns_of_streamed_text(
    third: TextFrontend, frontend: TextFrontend
) -> None:
    ids = third.prompt_ids(SynthesisRequest("", voice_prompt("", 9, "hello.")))
    lead = third.lead(ids)
    assert third._tokenizer.id_to_token(ids[lead - 1]) == "<|endofprompt|>" and lead == len(ids) - 2
    assert frontend.lead((1, 2, 3)) == 0


def test_pronunciations_of_cosyvoice3_are_one_id_each_and_survive_normalising(third: TextFrontend) -> None:
    (segment,) = third.segments("hello [zh][ōng] [AA0]")
    tokens = [third._tokenizer.id_to_token(n) for n in segment.token_ids]
    assert {"[zh]", "[ōng]", "[AA0]"} <= set(tokens)
    first = third._tokenizer.token_to_id("<|endoftext|>")
    assert third._tokenizer.token_to_id("<|endofsystem|>") == first + 3 + len(COSYVOICE2_SPECIAL)
    assert third._tokenizer.token_to_id("[AA]") == first + 4 + len(COSYVOICE2_SPECIAL)


def test_words_of_a_streamed_text_keep_the_blank_before_them(qwen_folder: Path) -> None:
    frontend = TextFrontend(load_tokenizer(qwen_folder), "raw", ("en",), max_text_chars=100)
    whole = text_ids(frontend._tokenizer, "hello w h 3")
    assert frontend.word_ids("hello") + frontend.word_ids(" w h") == whole[:-2]
    with pytest.raises(InvalidRequest, match="sound tag"):
        frontend.word_ids(" [cough]")


def test_reading_in_a_language_normalises_cuts_and_ends_by_its_rules(frontend: TextFrontend) -> None:
    (plain,), (mandarin,) = frontend.segments("hello 3"), frontend.reading("zh").segments("hello 3")
    assert (plain.text, mandarin.text) == ("hello three.", "hello三。")
    assert frontend.reading("zh").word_ids("hello 3") != frontend.word_ids("hello 3") == (1, 3)
    assert frontend.reading("") is frontend and frontend.segments("hello 3") == (plain,)


def test_transcript_is_read_by_its_script_whatever_the_language_of_the_text(frontend: TextFrontend) -> None:
    request = SynthesisRequest("", voice_prompt("", 9, "hello 3."), language="zh")
    assert frontend.reading("zh").prompt_ids(request) == frontend.prompt_ids(request) == (1, 3, 4)
