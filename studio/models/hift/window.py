"""The vocoder as a stream in passes of fixed shape: rows share pools on the device, and a pass is one CUDA graph.

The same samples as `Hift.step`, at the same time, for any split. What differs is the cost: a pass computes a window
of fixed width for each row again (window_geometry.py) and launches the same kernels whatever the rows are, where
`streaming.py` keeps the tails of all layers and cuts every row's own length out of them. CosyVoice3's `CausalHift`
is not served here: it looks hardly ahead and keeps its own path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from studio.models.hift.generator import Hift
from studio.models.hift.window_geometry import HOP_FRAMES, WindowGeometry
from studio.models.hift.window_network import Memory, Place, Precision, WindowNetwork
from studio.models.hift.window_rows import SLOTS, SPARE_SLOT, Entry, Lease, WindowState, moved_on, passes_of
from studio.models.uploads import Uploads

LARGEST_LAUNCH = 32
"""Rows of the largest graph, unless told otherwise: they fill a GPU, and more would only hold more memory."""
MAX_ROWS = 256
TOLD_LAUNCHES = 64
"""Launches whose rows are told in one copy; a step with more takes several."""


class Voiced(NamedTuple):
    """Row b's new samples are samples[b, :counts[b]], float32 [B, S] on the device; behind them stand zeros."""

    samples: Tensor
    counts: list[int]


class _Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    entries: Tensor
    frames: Tensor
    samples: Tensor
    places: Tensor


class WindowedHift:
    """A `Hift` for many rows. Owner: one thread, on one stream."""

    def __init__(
        self,
        model: Hift,
        *,
        max_rows: int = MAX_ROWS,
        precision: Precision = "float32",
        f0_dtype: torch.dtype = torch.float64,
        largest_launch: int = LARGEST_LAUNCH,
    ) -> None:
        """Take room for all rows.

        Args:    model: on its device, weight norm folded; precision: of the decoder's convolutions;
                 f0_dtype: float64, in which streams are alike whatever their rows, or float32 for GPUs that are
                 slow at it; largest_launch: rows computed at once, a power of two.
        """
        self.config, self.precision = model.config, precision
        self._geometry, self._largest = WindowGeometry(self.config), largest_launch
        self._network = WindowNetwork(model, self._geometry, precision=precision, f0_dtype=f0_dtype)
        self._device = model.conv_post.weight.device
        self._pools = self._network.memory(1 + SLOTS * max_rows)
        self._free = list(reversed(range(max_rows)))
        self._samples = torch.arange(HOP_FRAMES * self.config.samples_per_frame, device=self._device)
        self._hop = torch.arange(self._geometry.hop, device=self._device)
        self._uploads = Uploads(TOLD_LAUNCHES * largest_launch, len(Entry._fields), torch.int64, self._device)
        self._captured: dict[int, _Captured] = {}

    @property
    def lookahead_frames(self) -> int:
        """Mel frames that must follow a frame before all its samples are given by `step`."""
        return self._geometry.end_frames

    @property
    def pool_bytes(self) -> int:
        """Of all rows; taken at construction and held."""
        return sum(pool.element_size() * pool.nelement() for pool in self._pools)

    def open(self, seed: int) -> WindowState:
        """State of a new stream; the seed fixes its noise. Raises RuntimeError if all rows are taken."""
        if not self._free:
            raise RuntimeError("all rows of the vocoder are taken")
        row_bytes = SLOTS * self.pool_bytes // len(self._pools.mel)
        lease = Lease(self._free.pop(), row_bytes)
        return WindowState(seed, lease, lease.others(SPARE_SLOT)[0])

    def release(self, state: WindowState) -> None:
        """Free the row of a state and of all its copies; once more changes nothing."""
        if state.lease.open:
            state.lease.open = False
            self._free.append(state.lease.row)

    @torch.inference_mode()
    def warm_up(self, max_rows: int = MAX_ROWS) -> None:
        """On CUDA, choose algorithms, build kernels and capture a graph for 1, 2, 4 ... rows to the largest launch."""
        if self._device.type != "cuda":
            return
        pool, rows = torch.cuda.graph_pool_handle(), 1
        sizes = [rows]
        while rows < min(max_rows, self._largest):
            rows *= 2
            sizes.append(rows)
        for rows in reversed(sizes):  # the largest first: the others fit into its memory
            if rows not in self._captured:
                self._captured[rows] = self._capture(rows, pool)

    def step(
        self, states: Sequence[WindowState], mels: Sequence[Tensor], finals: Sequence[bool]
    ) -> list[Tensor]:
        """See `Hift.step`: mels [80, F_i] to samples [S_i], which are views of one tensor."""
        if not states:
            return []
        frames = torch.cat([mel.T for mel in mels])
        samples, counts = self.step_packed(states, frames, [mel.shape[1] for mel in mels], finals)
        return [samples[row, :count] for row, count in enumerate(counts)]

    @torch.inference_mode()
    def step_packed(
        self, states: Sequence[WindowState], frames: Tensor, counts: Sequence[int], finals: Sequence[bool]
    ) -> Voiced:
        """Voice all rows' new mel frames as far as their future is known, and advance their states.

        Args:    states: each once; frames: float32 [N, 80] on the device, one row's behind the other's; counts:
                 frames of each row, at least 0, N in all; finals: whether no more will come.
        Returns: a tensor of its own, not waited for: nothing here reads the device.
        Raises:  ValueError if a row has had its final step, is released or comes twice. What fails moves nobody.
        """
        if len({state.lease.row for state in states}) < len(states):
            raise ValueError("a row comes twice")
        for state in states:
            if state.closed or not state.lease.open:
                raise ValueError("this row has had its final step, or is released")
        after = [
            moved_on(state, count, final, self._geometry)
            for state, count, final in zip(states, counts, finals, strict=True)
        ]
        new = [later.samples_given - state.samples_given for state, later in zip(states, after, strict=True)]
        width = max(new, default=0)
        flat = torch.zeros(len(states) * width + 1, device=self._device)
        passes = passes_of(states, after, self._geometry, width)
        if passes:
            some = (
                frames.float() if len(frames) else torch.zeros(1, self.config.mel_bins, device=self._device)
            )
            self._run_all(passes, some, flat)
        for state, later in zip(states, after, strict=True):
            state.become(later)
        return Voiced(flat[:-1].view(len(states), width), new)

    def _run_all(self, passes: Iterable[Sequence[Entry]], frames: Tensor, flat: Tensor) -> None:
        """Pass after pass, each in as few launches as fit; new samples go to their places in flat."""
        launches: list[list[Entry]] = []
        for rows in passes:
            for size in self._launches(len(rows)):
                taken = list(rows[:size])
                rows = rows[size:]
                launches.append(taken + [Entry(dump=len(flat) - 1)] * (size - len(taken)))
        for begin in range(0, len(launches), TOLD_LAUNCHES):
            some = launches[begin : begin + TOLD_LAUNCHES]
            told = self._told([entry for launch in some for entry in launch])
            picked = (told[:, -1:] + self._hop).clamp_(max=len(frames) - 1)
            sizes = [len(launch) for launch in some]
            for entries, index in zip(told[:, :-1].split(sizes), picked.split(sizes), strict=True):
                samples, places = self._launch(entries, index.flatten(), frames)
                flat.scatter_(0, places.flatten(), samples.flatten())

    def _launches(self, rows: int) -> list[int]:
        """Sizes of the launches for so many rows: a graph with up to a quarter of it to spare (8 rows cost hardly
        more than one), else the largest that the rows fill, and so on with the rest."""
        sizes = []
        while rows > 0:
            size = min(rows, self._largest)
            if self._captured:
                roomy = [known for known in self._captured if rows <= known <= max(4 * rows // 3, 8)]
                size = min(roomy) if roomy else max(known for known in self._captured if known <= rows)
            sizes.append(size)
            rows -= size
        return sizes

    def _told(self, entries: list[Entry]) -> Tensor:
        """The entries on the device, int64 [B, 11], without waiting for it."""
        told = torch.empty(len(entries), len(Entry._fields), dtype=torch.int64, device=self._device)
        self._uploads.claim()[: len(entries)] = entries
        self._uploads.send(told)
        return told

    def _launch(self, told: Tensor, index: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Samples of one launch and their places; both are overwritten by the next one."""
        captured = self._captured.get(len(told))
        if captured is None:
            return self._run(told, frames.index_select(0, index).view(len(told), self._geometry.hop, -1))
        captured.entries.copy_(told)
        torch.index_select(frames, 0, index, out=captured.frames.view(-1, frames.shape[1]))
        captured.graph.replay()
        return captured.samples, captured.places

    def _run(self, told: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        """One pass: entries int64 [B, 10] without their start, frames [B, hop, 80]."""
        read, write, seed, before, fresh, total, skipped, new, offset, dump = told.unbind(1)
        begun = before > 0  # a new row's slots hold whatever the row before it left
        old = Memory(*(_kept(pool.index_select(0, read), begun) for pool in self._pools))
        samples, memory = self._network.run(old, Place(before, fresh, total, seed), frames)
        for pool, value in zip(self._pools, memory, strict=True):
            pool.index_copy_(0, write, value)
        place = self._samples - skipped[:, None]
        wanted = (place >= 0) & (place < new[:, None])
        return samples, torch.where(wanted, place + offset[:, None], dump[:, None])

    def _capture(self, rows: int, pool: tuple[int, int]) -> _Captured:
        entries = torch.zeros(rows, len(Entry._fields) - 1, dtype=torch.int64, device=self._device)
        frames = torch.zeros(rows, self._geometry.hop, self.config.mel_bins, device=self._device)
        aside = torch.cuda.Stream(self._device)
        aside.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(aside):
            for _ in range(2):  # the first call of a shape measures algorithms, which no capture can hold
                self._run(entries, frames)
        torch.cuda.current_stream(self._device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        # other threads may copy meanwhile
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            samples, places = self._run(entries, frames)
        return _Captured(graph, entries, frames, samples, places)


def _kept(values: Tensor, begun: Tensor) -> Tensor:
    return values.masked_fill(~begun.view(-1, *[1] * (values.dim() - 1)), 0.0)
