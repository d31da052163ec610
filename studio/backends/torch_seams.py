"""What token2wav asks of a flow and of a vocoder, plain or for GPUs. A kept state fits only the one that made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from studio.models.flow.sizes import DitConfig, FlowConfig
from studio.models.hift.config import HiftConfig


class StreamFlow(Protocol):
    """`models.flow.Flow` and `models.flow.paged.PagedFlow`."""

    @property
    def config(self) -> FlowConfig | DitConfig: ...

    @property
    def steps(self) -> int: ...

    @property
    def guidance(self) -> float: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def input_embedding(self) -> nn.Embedding: ...

    def begin_prompt(
        self,
        tokens: Tensor,
        mel: Tensor,
        embedding: Tensor,
        tail_tokens: int = 0,
        storage: torch.dtype = ...,
        guidance: float | None = None,
    ) -> Any: ...

    def open(self, prompt: Any) -> Any: ...

    def step(
        self, states: Sequence[Any], new_tokens: Sequence[Tensor], final: Sequence[bool]
    ) -> list[Tensor]: ...

    def synthesize(
        self,
        tokens: Tensor,
        prompt_tokens: Tensor,
        prompt_mel: Tensor,
        embedding: Tensor,
        streaming: bool = True,
        final: bool = True,
        guidance: float | None = None,
    ) -> Tensor: ...


class StreamVocoder(Protocol):
    """`models.hift.Hift`, `CausalHift` and `models.hift.window.WindowedHift`."""

    @property
    def config(self) -> HiftConfig: ...

    def open(self, seed: int) -> Any: ...

    def step(self, states: Sequence[Any], mels: Sequence[Tensor], finals: Sequence[bool]) -> list[Tensor]: ...
