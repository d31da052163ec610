"""vLLM's GPU worker where several engines share one GPU: each takes the first, as if it were alone.

To vLLM they are data-parallel copies, of which the n-th takes the n-th GPU. Copies of a model without experts know
nothing of each other; so where each of them runs is all that must be told.
"""

from __future__ import annotations

from vllm.v1.worker.gpu_worker import Worker

from studio.backends.vllm_graphs import GraphedWorker


class SharingWorker(Worker):
    """Named as worker_cls by vllm_compat.engine_arguments."""

    def init_device(self) -> None:
        self.parallel_config.data_parallel_rank_local = 0
        super().init_device()


class SharingGraphedWorker(SharingWorker, GraphedWorker):
    """Whose steps of any make are graphs, too."""
