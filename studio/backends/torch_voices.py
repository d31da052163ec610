"""The voices that flow rows were opened with last: what their prompts leave in the flow, ready or being prepared.

It computes in the caller's thread, as many blocks as the caller says; rows are not its business.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from studio.backends.torch_seams import StreamFlow
from studio.models.flow import PromptFlowCache, PromptPreparation
from studio.models.flow.paged import PagedFlow, PagedPreparation, PagedPrompt
from studio.speech import BLOCK_TOKENS, FIRST_BLOCK_TOKENS, VoicePrompt

CPU_BYTES = 2 * 2**30
GPU_SHARE = 0.1


FlowKey = tuple[str, float]


@dataclass(frozen=True, slots=True)
class FlowVoice:
    """A voice as rows of one guidance have it in the flow: what a prompt leaves there was solved with it."""

    prompt: VoicePrompt
    guidance: float

    @property
    def key(self) -> FlowKey:
        return self.prompt.key, self.guidance


class TorchVoices:
    """Prompts in the flow, by voice; those not used for longest are forgotten. Owner: token2wav's one thread.

    most, most_bytes: voices and memory of the ready ones, of which the newest stays whatever its size; 0 bytes:
    CPU_BYTES, on a GPU its GPU_SHARE. The official weights need 229 MB for each second of a prompt, half of it with
    storage: float16 instead of float32. first_block_tokens: spoken tokens of a row's first block, the rest of which are
    the prompt's last; of all voices and as long as these live, so a prompt is kept once (docs/decisions/0026).
    """

    def __init__(
        self,
        flow: StreamFlow,
        most: int,
        most_bytes: int = 0,
        storage: torch.dtype = torch.float32,
        first_block_tokens: int = FIRST_BLOCK_TOKENS,
    ) -> None:
        self._flow = flow
        self._storage = storage
        self.tail_tokens = BLOCK_TOKENS - first_block_tokens
        """Prompt tokens left behind a prompt's last whole block."""
        self._most = most
        self._most_bytes = most_bytes or _default_bytes(flow.device)
        self._ready: OrderedDict[FlowKey, PromptFlowCache | PagedPrompt] = OrderedDict()
        self._begun: dict[FlowKey, PromptPreparation | PagedPreparation] = {}

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def bytes(self) -> int:
        # Of a list: whoever looks at figures does so from another thread.
        return sum(prompt.bytes for prompt in list(self._ready.values()))

    def of(self, prompt: VoicePrompt, guidance: float | None = None) -> FlowVoice:
        """A voice with a guidance, None for the flow's own: it is one voice whether that is named or not."""
        return FlowVoice(prompt, self._flow.guidance if guidance is None else guidance)

    def prepare(self, voice: FlowVoice, blocks: int | None = None) -> bool:
        """Compute so many blocks of a voice's prompt, or all; gives whether it is ready now."""
        if voice.key in self._ready:
            return True
        preparation = self._begun.get(voice.key) or self._begin(voice)
        # Never given up for another one: with more voices begun than kept, none would ever be done.
        self._begun[voice.key] = preparation
        if not preparation.advance(blocks):
            return False
        del self._begun[voice.key]
        self._ready[voice.key] = preparation.cache()
        while len(self._ready) > 1 and (len(self._ready) > self._most or self.bytes > self._most_bytes):
            self.forget(next(iter(self._ready)))
        return True

    def get(self, voice: FlowVoice) -> PromptFlowCache | PagedPrompt:
        """The voice's prompt; what is still missing of it is computed now."""
        self.prepare(voice)
        self._ready.move_to_end(voice.key)
        return self._ready[voice.key]

    def forget(self, key: FlowKey) -> None:
        _release(self._ready.pop(key, None))

    def evict(self, used: Collection[FlowKey]) -> bool:
        """Give the memory of all ready voices but the used ones back to the GPU; whether there were any."""
        unused = self._ready.keys() - set(used)
        for key in unused:
            self.forget(key)
        if not isinstance(self._flow, PagedFlow):
            torch.cuda.empty_cache()
        return bool(unused)

    def give_up(self, key: FlowKey) -> None:
        """Prepare a voice no further: there is no memory for it, or nobody waits for it."""
        _release(self._begun.pop(key, None))

    def _begin(self, voice: FlowVoice) -> PromptPreparation | PagedPreparation:
        preparation: PromptPreparation | PagedPreparation = self._flow.begin_prompt(
            *prompt_tensors(self._flow, voice.prompt), tail_tokens=self.tail_tokens, storage=self._storage,
            guidance=voice.guidance,
        )  # fmt: skip
        return preparation


def _release(kept: PromptFlowCache | PagedPrompt | PromptPreparation | PagedPreparation | None) -> None:
    """Give pages back; other memory goes with who held it."""
    if isinstance(kept, PagedPrompt | PagedPreparation):
        kept.release()


def prompt_tensors(flow: StreamFlow, voice: VoicePrompt) -> tuple[Tensor, Tensor, Tensor]:
    """Speech tokens, mel and speaker embedding of a voice on the flow's device.

    Raises ValueError for a prompt of other models: on a GPU, its tokens would end the whole worker.
    """
    device, known = flow.device, flow.input_embedding.num_embeddings
    if len(voice.speech_tokens) and voice.speech_tokens.max() >= known:
        raise ValueError(f"speech token {voice.speech_tokens.max()} is not below {known}")
    return (
        torch.from_numpy(voice.speech_tokens.astype("int64")).to(device),
        torch.from_numpy(voice.mel).to(device),
        torch.from_numpy(voice.speaker_embedding).to(device),
    )


def _default_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return CPU_BYTES
    return int(GPU_SHARE * torch.cuda.get_device_properties(device).total_memory)
