"""Scoring arithmetic, the plan of items and the results file of the evaluation; no models."""

import dataclasses
import json

import httpx
import pytest

from studio.evaluate import report
from studio.evaluate.client import ServiceClient
from studio.evaluate.results import Row, append_row, pack_similarities, read_rows, unpack_similarities
from studio.evaluate.scoring import (
    best_match,
    edit_distance,
    error_ratio,
    has_gone_wrong,
    margin_over_wrong,
    quantile,
    relative_difference,
)
from studio.evaluate.texts import Prompt, expected_seconds, load_prompts, load_texts, plan

ROW = Row(
    id="en_seen_000",
    set="en_seen",
    language="en",
    prompt="a_en",
    speaker="a",
    group="seen",
    text="One two.",
    transcript='one, "two"\n',
    errors=0,
    length=2,
    character_errors=0,
    characters=6,
    audio_s=1.25,
    expected_s=1.0,
    wrong=False,
    similarity=0.9,
    best_match="a",
    similarities="a=0.900 b=0.500",
    pitch_hz=100.0,
    prompt_pitch_hz=110.0,
    overall=3.0,
    signal=3.5,
    background=4.0,
    p808=3.75,
    ttfa_s=0.5,
    wall_s=1.0,
    failure="",
)


def row(**changes: object) -> Row:
    return dataclasses.replace(ROW, **changes)


@pytest.mark.parametrize(
    ("reference", "heard", "edits"),
    [
        ("", "", 0),
        ("the cat sat", "the cat sat", 0),
        ("the cat sat", "the bat sat", 1),
        ("the cat sat", "the sat", 1),
        ("the cat sat", "well the cat sat down", 2),
        ("a b c d", "", 4),
        ("a b", "b a", 2),
    ],
)
def test_edit_distance_counts_least_edits(reference: str, heard: str, edits: int) -> None:
    assert edit_distance(reference.split(), heard.split()) == edits
    assert edit_distance(heard.split(), reference.split()) == edits


def test_error_ratio_of_empty_reference_does_not_divide_by_zero() -> None:
    assert error_ratio(3, 0) == 3
    assert error_ratio(1, 4) == 0.25


@pytest.mark.parametrize(
    ("errors", "audio_s", "wrong"),
    [
        (0, 2.0, False),
        (5, 2.0, False),
        (6, 2.0, True),
        (0, 3.1, False),
        (0, 3.3, True),
        (0, 1.3, False),
        (0, 1.2, True),
        (0, 0.0, True),
    ],
)
def test_item_goes_wrong_by_words_or_by_length(errors: int, audio_s: float, wrong: bool) -> None:
    assert has_gone_wrong(errors, 10, audio_s, expected_s=2.0) is wrong


def test_best_match_and_margin_name_the_right_speaker() -> None:
    assert best_match({"a": 0.6, "b": 0.7}) == "b"
    rows = [("a", {"a": 0.8, "b": 0.7, "c": 0.1}), ("a", {"a": 0.6, "b": 0.4, "c": 0.5})]
    assert margin_over_wrong(rows) == pytest.approx(0.7 - 0.55)


def test_quantile_interpolates() -> None:
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([0, 10], 0.95) == pytest.approx(9.5)
    assert quantile([7], 0.95) == 7


def test_relative_difference_is_of_the_wanted_value() -> None:
    assert relative_difference(90, 100) == pytest.approx(0.1)
    assert relative_difference(110, 100) == pytest.approx(0.1)


def test_expected_seconds_grow_with_letters_and_pauses() -> None:
    # 10 letters, 2 words, no pause: 0.579 + 0.0402 + 0.4549.
    assert expected_seconds("Hello world.", "en") == pytest.approx(1.0741)
    assert expected_seconds("Hello, world.", "en") == pytest.approx(1.0741 + 0.061)
    # 4 Hanzi and one pause: 0.7188 + 0.0778 + 0.3764.
    assert expected_seconds("你好，再见。", "zh") == pytest.approx(1.173)


def test_text_sets_hold_what_the_published_figures_say() -> None:
    assert len(load_texts("en")) == 500
    assert len(load_texts("zh")) == 50


def test_plan_reads_every_line_and_never_lets_a_speaker_of_another_group_in() -> None:
    items = plan(load_prompts())
    counts = {name: [i for i in items if i.set == name] for name in ("en_seen", "en_unseen", "en_real", "zh")}
    assert {name: len(found) for name, found in counts.items()} == {
        "en_seen": 100,
        "en_unseen": 100,
        "en_real": 40,
        "zh": 50,
    }
    assert {i.prompt.group for i in counts["en_unseen"]} == {"unseen_synthetic"}
    assert len({i.prompt.speaker for i in counts["en_unseen"]}) == 10
    assert len({i.id for i in items}) == len(items)
    readers = {
        p: [i.text for i in counts["en_real"] if i.prompt.speaker == p] for p in ("librivox", "allison")
    }
    assert readers["librivox"] == readers["allison"] and len(set(readers["allison"])) == 20


def test_limited_plan_is_the_start_of_the_whole_plan() -> None:
    prompts = load_prompts()
    few = plan(prompts, limit=3)
    assert len(few) == 12
    assert set(few) <= set(plan(prompts))


def test_prompts_are_four_to_eight_seconds_and_say_their_licence() -> None:
    rows = json.loads((load_prompts()[0].path.parent / "prompts.json").read_text())["prompts"]
    for prompt in rows:
        assert 3.5 <= prompt["seconds"] <= 8, prompt["id"]
        assert prompt["licence"] and prompt["source"] and prompt["transcript"]


def test_rows_come_back_from_the_file_as_they_were_written(tmp_path) -> None:
    failed = row(id="en_seen_001", similarity=None, ttfa_s=None, wrong=True, failure='500: broken, "quoted"')
    for written in (ROW, failed):
        append_row(tmp_path / "items.csv", written)
    assert read_rows(tmp_path / "items.csv") == [ROW, failed]
    assert read_rows(tmp_path / "none.csv") == []


def test_similarities_survive_a_cell() -> None:
    assert unpack_similarities(pack_similarities({"a": 0.1234, "b": -0.5})) == {"a": 0.123, "b": -0.5}


def test_summary_says_missed_must_and_aim() -> None:
    def verdict(errors: int) -> str:
        return next(
            f.verdict
            for f in report.findings([row(errors=errors, length=100)])
            if f.criterion.key == "wer_seen"
        )

    assert [verdict(n) for n in (4, 5, 8, 9)] == ["aim", "must", "must", "missed"]


def test_measures_pool_items_by_length_not_by_item() -> None:
    rows = [
        row(errors=1, length=2, audio_s=1.0, wall_s=2.0),
        row(errors=0, length=8, audio_s=3.0, wall_s=2.0),
    ]
    assert report.word_error_ratio(rows) == pytest.approx(0.1)
    assert report.rtf(rows) == pytest.approx(1.0)


def test_failed_items_count_as_wrong_but_not_in_likeness() -> None:
    rows = [ROW, row(similarity=None, best_match="", similarities="", wrong=True, pitch_hz=None)]
    assert report.wrong_per_hundred(rows) == 50
    assert report.similarity(rows) == pytest.approx(0.9)
    assert report.told_apart_ratio(rows) == 0.5
    assert report.pitch_error_ratio(rows) == pytest.approx(10 / 110)


def test_least_margin_is_that_of_the_worst_speaker() -> None:
    rows = [
        row(speaker="a", similarities="a=0.8 b=0.5 c=0.4"),
        row(speaker="b", similarities="a=0.6 b=0.7 c=0.3"),
    ]
    assert report.least_margin(rows) == pytest.approx(0.1)


def test_report_has_a_table_and_one_json_line() -> None:
    page = report.markdown([ROW], {"seed": 1})
    assert "| WER, English, seen voices | **0.0 %** | <= 8.0 % | <= 4.0 % | aim | 1 |" in page
    line = report.json_line([ROW], {"seed": 1})
    assert "\n" not in line
    figures = json.loads(line)
    assert (
        figures["wer_seen"] == 0
        and figures["conditions"] == {"seed": 1}
        and figures["reached"]["wer_seen"] == "aim"
    )


def service(replies: dict[tuple[str, str], httpx.Response], seen: list[httpx.Request]) -> ServiceClient:
    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return replies[request.method, request.url.path]

    return ServiceClient("http://studio.test", transport=httpx.MockTransport(answer))


def test_client_streams_pcm_and_sends_the_seed() -> None:
    seen: list[httpx.Request] = []
    pcm = (b"\x00\x40" * 12000, b"\x00\xc0" * 12000)
    client = service({("POST", "/v1/audio/speech"): httpx.Response(200, content=iter(pcm))}, seen)
    utterance = client.speak("Hello.", "v1", 7, {"temperature": 0.8})
    assert utterance.audio_s == 1.0
    assert utterance.samples[0] == 0.5 and utterance.samples[-1] == -0.5
    assert 0 <= utterance.ttfa_s <= utterance.wall_s
    body = json.loads(seen[0].content)
    assert body == {"input": "Hello.", "voice": "v1", "seed": 7, "response_format": "pcm", "temperature": 0.8}


def test_client_asks_once_and_passes_a_refusal_on() -> None:
    seen: list[httpx.Request] = []
    client = service({("POST", "/v1/audio/speech"): httpx.Response(429, text="busy")}, seen)
    with pytest.raises(httpx.HTTPStatusError, match="429: busy"):
        client.speak("Hello.", "v1", 7)
    assert len(seen) == 1


def test_empty_stream_is_a_failure_not_silence() -> None:
    client = service({("POST", "/v1/audio/speech"): httpx.Response(200, content=b"")}, [])
    with pytest.raises(httpx.RemoteProtocolError):
        client.speak("Hello.", "v1", 7)


def test_voice_is_made_once_and_found_again() -> None:
    prompt: Prompt = load_prompts()[0]
    kept = {"id": "v9", "name": "evaluation " + prompt.id, "ref_text": prompt.transcript}
    seen: list[httpx.Request] = []
    made = {
        ("GET", "/v1/audio/voices"): httpx.Response(200, json={"data": []}),
        ("POST", "/v1/audio/voices"): httpx.Response(200, json={"id": "v9"}),
    }
    assert service(made, seen).voice_for(prompt) == "v9"
    assert b"ref_text" in seen[1].content and b"consent" in seen[1].content
    again = {("GET", "/v1/audio/voices"): httpx.Response(200, json={"data": [kept]})}
    assert service(again, seen).voice_for(prompt) == "v9"
