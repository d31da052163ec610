"""The embedded voice's front end: English and Mandarin text to symbols, each of them one token."""

import subprocess
import sys

import pytest

from studio.text.spoken import spoken, spoken_words
from studio.text.spoken_en import letter_names, read_word, word_readings
from studio.text.spoken_symbols import CONSONANTS, FINALS, INITIALS, LETTERS, MARKS, STRESSES, TONES, VOWELS
from studio.text.spoken_zh import read_hanzi, syllable_sounds

KNOWN = {
    *VOWELS, *CONSONANTS, *STRESSES, *MARKS, *TONES, *LETTERS.values(), *"".join(FINALS.values()), *INITIALS.values(),
}  # fmt: skip


def test_import_loads_no_lexicon_and_no_pinyin():
    code = "import studio.text.spoken, sys; print('torch' in sys.modules, 'pypinyin' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    ("word", "sounds"),
    [("hello", "həlˈO"), ("Henry", "hˈɛnɹi"), ("dogs", "dˈɔɡz"), ("boxes", "bˈɑksɪz"),
     ("cat's", "kˈats"), ("dogs'", "dˈɔɡz"), ("isn't", "ˈɪzənt"), ("Olivia", "ɑlˈɪviə"), ("NASA", "nˈasə"),
     ("TV", "tˌi vˈi"), ("doghill", "dˈɔɡhˌɪl")],
)  # fmt: skip
def test_words_are_read_by_lexicon_and_rules(word, sounds):
    assert read_word(word) == sounds


def test_the_changes_before_a_vowel():
    assert spoken("the apple, the pear") == " Di ˈapəl, Də pˈɛɹ"


def test_the_word_before_decides_between_noun_and_verb():
    assert spoken("I use the use") == " ˈI jˈuz Də jˈus"
    assert spoken("they live") == " DA lˈɪv"
    assert spoken("he used to sing; used to cut") == " hi jˈust tə sˈɪŋ; jˈuzd tə kˈʌt"


def test_heteronym_gives_every_reading_default_first():
    assert word_readings("read") == ("ɹˈid", "ɹˈɛd")


def test_unknown_word_is_spelled_in_letter_symbols():
    assert spoken("xqzvb") == " ｘｑｚｖｂ"


def test_acronym_is_read_by_letter_names():
    assert letter_names("XQ") == "ˌɛks kjˈu"


@pytest.mark.parametrize(
    ("pinyin", "sounds"),
    [("zhuang1", "ㄓㄨㄤ1"), ("yu2", "ㄩ2"), ("xue2", "ㄒㄩㄝ2"), ("zi5", "ㄗ5"), ("wo3", "ㄨㄛ3"),
     ("yong4", "ㄩㄥ4"), ("er4", "ㄦ4"), ("lv4", "ㄌㄩ4"), ("yi1", "ㄧ1"), ("you3", "ㄧㄡ3"),
     ("jiong3", "ㄐㄩㄥ3"), ("weng1", "ㄨㄥ1")],
)  # fmt: skip
def test_syllables_become_bopomofo_with_a_tone(pinyin, sounds):
    assert syllable_sounds(pinyin) == sounds


def test_phrases_decide_between_readings_of_one_hanzi():
    assert read_hanzi("银行") == "ㄧㄣ2ㄏㄤ2"
    assert read_hanzi("行人") == "ㄒㄧㄥ2ㄖㄣ2"


def test_mixed_text_keeps_marks_and_parts_languages():
    assert spoken("你好，world！") == " ㄋㄧ3ㄏㄠ3, wˈɜɹld!"


def test_only_known_symbols_come_out():
    text = "Café — “naïve” 10% of O'Brien's résumés… 女儿说：“不！” ① #hash\n(x) "
    assert set(spoken(text)) <= KNOWN


def test_of_marks_in_a_row_the_last_counts_and_none_leads():
    assert spoken("...well?!") == " wˈɛl!"


def test_nothing_to_speak_gives_nothing():
    assert spoken("— … “”") == ""
    assert spoken_words("") == []
