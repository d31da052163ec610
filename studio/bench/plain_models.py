"""The studio's models driven plainly: transformers' `generate`, and a flow that keeps nothing between hops.

For the bench to compare with; the studio does not use it. Weights, sampling law and vocoder are the studio's own.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import LogitsProcessor, LogitsProcessorList, Qwen2Config, Qwen2ForCausalLM
from transformers.generation.streamers import BaseStreamer

from studio.checkpoint import Checkpoint, read_config, weight_file
from studio.models.flow import Flow
from studio.models.hift import Hift, load_hift
from studio.models.speech_lm.convert import convert_checkpoint
from studio.models.speech_lm.layout import TokenBounds
from studio.models.speech_lm.ras import NO_TOKEN, RasRows, final_log_probs
from studio.models.upstream import Hop, UpstreamStream, vocode, with_upstream_phase
from studio.models.weights import read_tensors
from studio.speech import Float32, Sampling, VoicePrompt


class Manner(NamedTuple):
    """How texts are spoken: the voice, the ids of its transcript, and the sampling."""

    voice: VoicePrompt
    prompt_text_ids: Sequence[int]
    sampling: Sampling


class Law(LogitsProcessor):
    """The studio's sampling law, and the least length of each row, inside `generate`."""

    def __init__(
        self, sampling: Sampling, least: Sequence[int], prompt: int, end_ids: Sequence[int], device: str
    ) -> None:
        self._sampling, self._prompt, self._end_ids = sampling, prompt, list(end_ids)
        self._least = torch.tensor(least, device=device)

        def column(value: float, dtype: torch.dtype) -> Tensor:
            return torch.full((len(least), 1), value, dtype=dtype, device=device)

        self._rows = RasRows(
            column(sampling.temperature, torch.float32), column(sampling.top_p, torch.float32),
            column(sampling.top_k, torch.int64), column(1, torch.int64), max(2, sampling.top_k),
        )  # fmt: skip

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        spoken = input_ids[:, self._prompt :]
        scores = scores.float()
        scores[:, self._end_ids] = scores[:, self._end_ids].masked_fill(
            (spoken.shape[1] < self._least)[:, None], float("-inf")
        )
        recent = spoken[:, -self._sampling.window :] if self._sampling.window else spoken[:, :0]
        window = nn.functional.pad(recent, (0, self._sampling.window - recent.shape[1]), value=NO_TOKEN)
        return final_log_probs(scores, window, self._rows)


class _Tokens(BaseStreamer):
    """Hands the tokens of one row from the thread that generates to the one that voices them."""

    def __init__(self) -> None:
        self.queue: queue.Queue[int | None] = queue.Queue()
        self._prompt = True

    def put(self, value: Tensor) -> None:
        if not self._prompt:
            self.queue.put(int(value))
        self._prompt = False  # generate gives the prompt first

    def end(self) -> None:
        self.queue.put(None)


class PlainLM:
    """transformers' Qwen2 with the studio's merged vocabulary and narrow head."""

    def __init__(self, checkpoint: Checkpoint, cache: Path, device: str, dtype: torch.dtype) -> None:
        source = weight_file(checkpoint.folder, "llm")
        converted = convert_checkpoint(source, checkpoint.tokenizer_folder / "config.json", cache)
        self.layout, self._device = converted.layout, device
        self._bounds = TokenBounds(checkpoint.min_token_text_ratio, checkpoint.max_token_text_ratio)
        config = Qwen2Config(**read_config(converted.folder / "config.json"))
        config.tie_word_embeddings = False
        model = Qwen2ForCausalLM(config)
        tensors: dict[str, Tensor] = {}
        for file in sorted(converted.folder.glob("*.safetensors")):
            tensors |= load_file(file)
        model.lm_head = nn.Linear(config.hidden_size, self.layout.head_width, bias="lm_head.bias" in tensors)
        model.load_state_dict(tensors)
        self._model = model.to(device, dtype).eval()

    def stream(self, text_ids: Sequence[int], manner: Manner) -> Iterator[int]:
        """Speech tokens of one request as they are drawn, by a thread of their own."""
        streamer = _Tokens()
        failure: list[BaseException] = []

        def run() -> None:
            try:
                self._generate([text_ids], manner, streamer)
            except BaseException as error:
                failure.append(error)
                streamer.end()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while (token := streamer.queue.get()) is not None:
            if token < self.layout.speech_codes:
                yield token
        thread.join()
        if failure:
            raise failure[0]

    def batch(self, texts: Sequence[Sequence[int]], manner: Manner) -> list[list[int]]:
        """Speech tokens of many requests, once the longest has ended."""
        drawn = self._generate(texts, manner, None)
        rows = []
        for text, row in zip(texts, drawn.tolist(), strict=True):
            end = next((n for n, token in enumerate(row) if token >= self.layout.speech_codes), len(row))
            most = self._bounds.of(len(text))[1]  # the batch went on to its longest row's
            rows.append(row[: min(end, most)])
        return rows

    @torch.inference_mode()
    def _generate(
        self, texts: Sequence[Sequence[int]], manner: Manner, streamer: BaseStreamer | None
    ) -> Tensor:
        """Drawn ids [B, T], each row filled behind its end; prompts of unequal length are filled in front."""
        voice, prompt_text_ids, sampling = manner
        prompts = [
            self.layout.prompt_ids(prompt_text_ids, text, voice.speech_tokens.tolist()) for text in texts
        ]
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts], device=self._device)
        seen = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=self._device)
        bounds = [self._bounds.of(len(text)) for text in texts]
        law = Law(sampling, [least for least, _ in bounds], longest, self.layout.end_ids, self._device)
        torch.manual_seed(sampling.seed)
        options: dict[str, Any] = {
            "max_new_tokens": max(most for _, most in bounds), "do_sample": True, "temperature": 1.0, "top_p": 1.0,
            "top_k": 0, "eos_token_id": list(self.layout.end_ids), "pad_token_id": self.layout.end_ids[0],
        }  # fmt: skip
        done = self._model.generate(
            input_ids=ids,
            attention_mask=seen,
            logits_processor=LogitsProcessorList([law]),
            streamer=streamer,
            **options,
        )
        return done[:, longest:]


class PlainToken2Wav:
    """Flow and vocoder without a cache: a hop computes its whole prefix again; a whole speech is one call."""

    def __init__(self, flow: Flow, hift: Hift, device: str) -> None:
        self._flow, self._hift, self._device = (
            flow.to(device).eval(),
            with_upstream_phase(hift.to(device)),
            device,
        )

    @classmethod
    def of(cls, checkpoint: Checkpoint, flow_steps: int, device: str) -> PlainToken2Wav:
        flow = Flow.from_file(weight_file(checkpoint.folder, "flow"), steps=flow_steps)
        hift_file = weight_file(checkpoint.folder, "hift")
        hift = load_hift(read_tensors(hift_file), str(hift_file))
        if not isinstance(hift, Hift):
            raise SystemExit("the baseline speaks CosyVoice2 alone")
        return cls(flow, hift, device)

    def _prompt(self, voice: VoicePrompt) -> tuple[Tensor, Tensor, Tensor]:
        return (
            torch.from_numpy(voice.speech_tokens.astype(np.int64)).to(self._device),
            torch.from_numpy(voice.mel).to(self._device), torch.from_numpy(voice.speaker_embedding).to(self._device),
        )  # fmt: skip

    def stream(self, tokens: Iterator[int], voice: VoicePrompt, seed: int) -> Iterator[Float32]:
        """Sound of each hop as soon as its tokens are there."""
        noise = partial(self._hift.draw_noise, seed=seed)
        stream = UpstreamStream(self._flow, self._hift, Hop(), self._prompt(voice), noise)
        for token in tokens:
            for chunk in stream.push(torch.tensor([token]), final=False):
                yield chunk.speech.float().cpu().numpy()
        for chunk in stream.push(torch.tensor([], dtype=torch.int64), final=True):
            yield chunk.speech.float().cpu().numpy()

    def whole(self, tokens: Sequence[int], voice: VoicePrompt, seed: int) -> Float32:
        mel = self._flow.synthesize(
            torch.tensor(tokens, device=self._device), *self._prompt(voice), streaming=False
        )
        return vocode(self._hift, mel, partial(self._hift.draw_noise, seed=seed))[2].float().cpu().numpy()
