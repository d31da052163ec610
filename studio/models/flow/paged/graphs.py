"""Work of fixed shapes as CUDA graphs: captured once, then replayed. On a CPU, and before capture, it just runs."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch


class Graphs:
    """Graphs by key, of one device; all share one memory, so no two may run at once. Owner: one thread.

    Work reads and writes memory that outlives it, and nothing that another graph leaves in the shared memory.
    """

    def __init__(self, device: torch.device) -> None:
        self.replaying = device.type == "cuda"
        """Whether captured work is replayed; else all work runs as it is, for comparing."""
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        if self.replaying:
            self._memory = torch.cuda.graph_pool_handle()
            # One stream for all runs before a capture: what was freed on a stream is taken there again.
            self._beside = torch.cuda.Stream()

    def __len__(self) -> int:
        return len(self._graphs)

    def run(self, key: Hashable, work: Callable[[], None]) -> None:
        graph = self._graphs.get(key) if self.replaying else None
        if graph is None:
            work()
        else:
            graph.replay()

    def capture(self, key: Hashable, work: Callable[[], None]) -> None:
        """Run the work once as it is, which builds its kernels and takes what it keeps, then record it."""
        if not self.replaying or key in self._graphs:
            return
        self._beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._beside):
            work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads of the worker (the prompt encoder) may use the device meanwhile.
        with torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"):
            work()
        self._graphs[key] = graph
