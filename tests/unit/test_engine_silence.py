"""Long silences of CosyVoice3."""

from studio.engine.silence import Silences


def test_sixth_silent_token_in_a_row_is_dropped_across_deltas() -> None:
    silences = Silences(frozenset((1, 2)))
    assert silences.shortened((9, 1, 2, 1)) == [9, 1, 2, 1]
    assert silences.shortened((1, 2, 1, 1, 9, 1)) == [1, 2, 9, 1]


def test_model_whose_silences_are_left_alone_keeps_all() -> None:
    assert list(Silences(frozenset()).shortened((1,) * 20)) == [1] * 20
