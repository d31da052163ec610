"""Opening a test: its material is judged a last time and made ready; from then on nothing of it changes."""

from __future__ import annotations

from studio.errors import ListeningConflict
from studio.listening import problems
from studio.listening.material import ready
from studio.listening.problems import Problem
from studio.listening.store import GivenClip, ListeningStore, Test
from studio.speech import Float32


def all_problems(store: ListeningStore, test: Test) -> list[Problem]:
    """Of the design and of the material given so far."""
    clips = store.clips(test.id, "given")
    return [*problems.of_design(test.design), *problems.of_material(test.design, clips)]


def open_test(store: ListeningStore, test: Test, references: dict[str, tuple[Float32, int]]) -> None:
    """Make the material ready and let raters in; for a thread, since it takes a while.

    Args:    references: clips of the conditions' own voices by condition id, for similarity against them.
    Raises:  InvalidRequest for the first error; ListeningConflict for a test that is no draft.
    """
    if test.state != "draft":
        raise ListeningConflict("listening.not_draft")
    problems.refuse(all_problems(store, test))
    given = store.clips(test.id, "given")
    sounds = {key: (store.samples(test.id, clip), clip.rate_hz) for key, clip in given.items()}
    items = sorted({item for item, _ in given})
    sounds |= {(item, f"reference:{c}"): clip for c, clip in references.items() for item in items}
    texts = {item: clip.text for (item, _), clip in given.items() if clip.text}
    if not test.design.arena:
        clips, rate_hz = ready(test.design, sounds)
        for (item, condition), samples in clips.items():
            store.put_clip(
                test.id, "ready", GivenClip(item, condition, samples, rate_hz, texts.get(item, ""))
            )
    store.open(test.id)
