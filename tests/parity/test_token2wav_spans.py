"""What a step tells of its time."""

from __future__ import annotations

import torch

from studio.backends.torch_spans import Spans


def test_spans_follow_each_other_and_are_as_many_as_their_marks() -> None:
    spans = Spans(torch.device("cpu"))
    assert spans.seconds() == []
    spans.mark()
    torch.ones(200, 200) @ torch.ones(200, 200)
    spans.mark()
    first, second = spans.seconds()
    assert first >= 0 and second > 0
