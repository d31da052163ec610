"""Answers go into CSV and come back the same."""

from __future__ import annotations

import pytest

from studio.listening.answers import Answer, Kind, Role, read_csv, write_csv

ANSWER = Answer("t", "r1", "k1", 1, Kind.MOS, Role.TEST, "item", "c1", 4.0)


@pytest.mark.parametrize("text", ["plain", 'said "so", then\nleft', "=1+1", "-2", "'quoted", "你好，世界"])
def test_answers_survive_csv_whatever_was_typed(text: str) -> None:
    answer = Answer(
        **{name: getattr(ANSWER, name) for name in ANSWER.__slots__} | {"comment": text, "wanted_low": 2.0}
    )
    assert read_csv(write_csv([ANSWER, answer])) == [ANSWER, answer]


def test_a_spreadsheet_runs_nothing_that_a_rater_typed() -> None:
    answer = Answer("t", "r", "k", 1, Kind.MOS, Role.TEST, "i", "c", 4.0, comment="=HYPERLINK(1)")
    assert ",'=HYPERLINK(1)," in write_csv([answer])


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError):
        read_csv(write_csv([ANSWER]).replace("4.0", "four"))
