"""Host memory on its way to a device: written again only once the device has read it."""

from __future__ import annotations

import torch

from studio.models.uploads import PIECES, Uploads


class Mark:
    """In place of a CUDA event: notes in a common list when it is set and when it is waited for."""

    def __init__(self, number: int, seen: list[tuple[str, int]]) -> None:
        self._number, self._seen = number, seen

    def record(self) -> None:
        self._seen.append(("sent", self._number))

    def synchronize(self) -> None:
        self._seen.append(("waited", self._number))


def marked(seen: list[tuple[str, int]]) -> Uploads:
    numbers = iter(range(PIECES))
    return Uploads(4, 3, torch.int64, torch.device("cpu"), lambda: Mark(next(numbers), seen))


def test_what_was_sent_is_what_was_written_and_later_writing_leaves_it() -> None:
    uploads, sent = Uploads(4, 3, torch.int64, torch.device("cpu")), []
    for number in range(2 * PIECES):
        uploads.claim()[:2] = number
        sent.append(torch.empty(2, 3, dtype=torch.int64))
        uploads.send(sent[-1])
    assert [tensor.unique().tolist() for tensor in sent] == [[number] for number in range(2 * PIECES)]


def test_pieces_are_taken_in_turn_and_only_the_oldest_copy_is_waited_for() -> None:
    seen: list[tuple[str, int]] = []
    uploads = marked(seen)
    places = set()
    for _ in range(PIECES):
        places.add(uploads.claim().__array_interface__["data"][0])
        uploads.send(torch.empty(1, 3, dtype=torch.int64))
    assert len(places) == PIECES and [what for what, _ in seen] == ["sent"] * PIECES
    oldest = seen[0][1]
    uploads.claim()
    assert seen[PIECES:] == [("waited", oldest)]


def test_piece_that_was_claimed_and_never_sent_is_not_waited_for() -> None:
    seen: list[tuple[str, int]] = []
    uploads = marked(seen)
    for _ in range(2 * PIECES):
        uploads.claim()
    assert seen == []
