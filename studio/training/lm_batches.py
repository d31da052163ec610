"""Documents of the speech LM's training, drawn and packed into fixed rows by worker processes; numpy only.

A document is what zero-shot decoding shows the model: [sos] texts of one to four clips of one voice [task] their
speech tokens, end. The first clips are thus the prompt of the last. Every speech token is a target.
"""

from __future__ import annotations

import multiprocessing
import queue
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studio.training.lm_data import LmData

IGNORE = -100
CLIP_COUNTS = np.array([0.3, 0.4, 0.2, 0.1])
"""Share of documents of one, two, three and four clips."""
VARIANT_SHARES = np.array([0.5, 0.28, 0.22])
"""Of `lm_data.VARIANTS`; the last leaves a quarter of its English words in letters."""
JOINED_SHARE = 0.15
"""Clips whose text follows the one before without a blank, as when a prompt text was cut."""
CORRUPTED_SHARE = 0.03
PLAIN_SINGLES_UNTIL = 0.04
"""Share of the run in which documents are single clips: alignment is learnt quicker on short ones."""


@dataclass(frozen=True, slots=True)
class MergedIds:
    """Where the ids lie in the compact model (see layout.py): `codes` speech codes, then ends, sos, task, text."""

    codes: int

    @property
    def end(self) -> int:
        return self.codes

    @property
    def sos(self) -> int:
        return self.codes + 3

    @property
    def task(self) -> int:
        return self.codes + 4

    @property
    def text(self) -> int:
        return self.codes + 5


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """ids int64 [T]; target speech ids [T] (IGNORE where none); labels [T, 2] and progress [T] of the target token."""

    ids: NDArray[np.int64]
    target: NDArray[np.int64]
    labels: NDArray[np.int64]
    progress: NDArray[np.int64]


class DocumentMaker:
    """Draws documents from the training (or validation) clips of one data file with its own random numbers."""

    def __init__(self, data: LmData, seed: int, validation: bool = False):
        self.data, self.rng = data, np.random.default_rng(seed)
        self.ids = MergedIds(len(data.codes))
        chosen = np.nonzero(data.validation == validation)[0]
        # Clips as they were spoken are drawn twice as often as those played faster or slower.
        self.clips = (
            np.concatenate([chosen, chosen[data.played[chosen] == 1.0]]) if not validation else chosen
        )
        self.by_speaker = {int(s): chosen[data.speaker[chosen] == s] for s in np.unique(data.speaker[chosen])}

    def draw(self, most_clips: int = 4) -> Document:
        """One training document: a random clip and, before it, others by the same voice."""
        last = int(self.rng.choice(self.clips))
        shares = CLIP_COUNTS[:most_clips] / CLIP_COUNTS[:most_clips].sum()
        others = self.by_speaker[int(self.data.speaker[last])]
        before = self.rng.choice(others, size=int(self.rng.choice(len(shares), p=shares)))
        clips = [*(int(c) for c in before if self.data.text_key[c] != self.data.text_key[last]), last]
        variants = self.rng.choice(len(VARIANT_SHARES), size=len(clips), p=VARIANT_SHARES)
        document = self.document(
            clips, [int(v) for v in variants], self.rng.random(len(clips)) < JOINED_SHARE
        )
        return self._corrupt(document)

    def document(
        self, clips: list[int], variants: list[int], joined: NDArray[np.bool_] | None = None
    ) -> Document:
        """The document of some clips in order; `joined` clips lose the blank before their text."""
        data, ids = self.data, self.ids
        texts = [data.text(c, v) for c, v in zip(clips, variants, strict=True)]
        if joined is not None:
            texts = [t[1:] if j and len(t) > 1 else t for t, j in zip(texts, joined, strict=True)]
        text = np.concatenate(texts).astype(np.int64) + ids.text
        speech = np.concatenate([data.speech(c) for c in clips]).astype(np.int64)
        head = np.concatenate([[ids.sos], text, [ids.task]])
        size = len(head) + len(speech)
        target = np.full(size, IGNORE, dtype=np.int64)
        labels = np.full((size, 2), IGNORE, dtype=np.int64)
        progress = np.full(size, IGNORE, dtype=np.int64)
        spoken = slice(len(head) - 1, size - 1)
        target[spoken], target[-1] = speech, ids.end
        spans = [slice(data.token_starts[c], data.token_starts[c + 1]) for c in clips]
        progress[spoken] = np.concatenate([data.progress[s] for s in spans])
        labels[spoken] = np.concatenate([data.labels[2 * s.start : 2 * s.stop] for s in spans]).reshape(-1, 2)
        return Document(np.concatenate([head, speech]), target, labels, progress)

    def _corrupt(self, document: Document) -> Document:
        """Some heard speech tokens become their neighbour or any other; targets stay."""
        ids = document.ids
        hit = np.nonzero((ids < self.ids.codes) & (self.rng.random(len(ids)) < CORRUPTED_SHARE))[0]
        near = np.clip(hit + self.rng.integers(-2, 3, len(hit)), 0, len(ids) - 1)
        anything = self.rng.integers(0, self.ids.codes, len(hit))
        ids[hit] = np.where(
            (ids[near] < self.ids.codes) & (self.rng.random(len(hit)) < 0.5), ids[near], anything
        )
        return document


def pack_rows(documents: list[Document], rows: int, width: int) -> tuple[dict[str, NDArray], list[Document]]:
    """Lay documents into rows, longest first, first row that has room; gives the arrays and what found no room.

    Arrays int32 [rows, width]: ids, position (in its document), document (-1: padding), target, progress; labels
    [rows, width, 2].
    """
    out = {
        "ids": np.zeros((rows, width), np.int32), "position": np.zeros((rows, width), np.int32),
        "document": np.full((rows, width), -1, np.int32), "target": np.full((rows, width), IGNORE, np.int32),
        "progress": np.full((rows, width), IGNORE, np.int32), "labels": np.full((rows, width, 2), IGNORE, np.int32),
    }  # fmt: skip
    used = np.zeros(rows, np.int64)
    left: list[Document] = []
    for number, document in enumerate(sorted(documents, key=lambda d: -len(d.ids))):
        size = len(document.ids)
        fits = np.nonzero(used + size <= width)[0]
        if len(fits) == 0:
            if size <= width:
                left.append(document)
            continue
        row = int(fits[0])
        place = slice(int(used[row]), int(used[row]) + size)
        used[row] += size
        out["ids"][row, place], out["target"][row, place] = document.ids, document.target
        out["progress"][row, place], out["labels"][row, place] = document.progress, document.labels
        out["position"][row, place], out["document"][row, place] = np.arange(size), number
    return out, left


def next_batch(
    maker: DocumentMaker, left: list[Document], rows: int, width: int, most_clips: int
) -> tuple[dict[str, NDArray], list[Document]]:
    """A full batch: documents are drawn until they overfill the rows by a little."""
    documents, size = list(left), sum(len(d.ids) for d in left)
    while size < 1.01 * rows * width:
        documents.append(maker.draw(most_clips))
        size += len(documents[-1].ids)
    return pack_rows(documents, rows, width)


class BatchStream:
    """Batches from worker processes, each with its own random numbers; `close` ends them."""

    def __init__(self, data: LmData, rows: int, width: int, workers: int, seed: int):
        context = multiprocessing.get_context("fork")
        self.progress: Synchronized[float] = context.Value("d", 0.0)
        self.queue: multiprocessing.Queue = context.Queue(maxsize=2 * workers + 2)
        self.workers = [
            context.Process(
                target=_work,
                args=(data, rows, width, seed * 1000 + i, self.progress, self.queue),
                daemon=True,
            )
            for i in range(workers)
        ]
        for worker in self.workers:
            worker.start()

    def get(self) -> dict[str, NDArray]:
        """The next batch; raises RuntimeError if the workers have died."""
        while True:
            try:
                return self.queue.get(timeout=20)
            except queue.Empty:
                if not any(w.is_alive() for w in self.workers):
                    raise RuntimeError("every batch worker has died") from None

    def close(self) -> None:
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.join()


def _work(
    data: LmData, rows: int, width: int, seed: int, progress: Synchronized, out: multiprocessing.Queue
) -> None:
    maker, left = DocumentMaker(data, seed), list[Any]()
    while True:
        most = 1 if progress.value < PLAIN_SINGLES_UNTIL else len(CLIP_COUNTS)
        batch, left = next_batch(maker, left, rows, width, most)
        out.put(batch)
