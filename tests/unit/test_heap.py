"""What a start left is never walked again."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from studio import heap


@pytest.fixture
def usual() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("usual")
def test_what_is_there_is_walked_no_more_and_what_comes_is() -> None:
    before: list[object] = [[]]
    heap.settle()
    after: list[object] = [[]]
    walked = {id(found) for found in gc.get_objects()}
    assert id(before) not in walked and id(after) in walked


@pytest.mark.usefixtures("usual")
def test_a_cycle_made_later_still_goes() -> None:
    class Node:
        itself: object

    heap.settle()
    heap.collect_seldom()
    node = Node()
    node.itself, gone = node, weakref.ref(node)
    del node
    gc.collect()
    assert gone() is None
