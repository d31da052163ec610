"""The whole flow of either version: speech tokens, a prompt and a speaker embedding to mel.

Whole sequences and training are here; streams that keep a cache are in `stream.py`.

Axes: B batch, T tokens, F mel frames (two for each token), C channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from studio.models.flow import stream, training
from studio.models.flow.dit import DiffusionTransformer, RepeatedTokens
from studio.models.flow.encoder import Lookahead, UpsampleConformerEncoder
from studio.models.flow.estimator import CausalConditionalDecoder
from studio.models.flow.layers import View, WholeView, lay_out_for_products, visibility
from studio.models.flow.prompt import PromptPreparation
from studio.models.flow.sizes import (
    BLOCK_FRAMES,
    FLOW_STEPS,
    GUIDANCE,
    LOOKAHEAD_TOKENS,
    MEL_BINS,
    NOISE_FRAMES,
    DitConfig,
    FlowConfig,
    config_of,
)
from studio.models.flow.solver import flow_times, solve, start_noise
from studio.models.flow.state import FlowState, PromptFlowCache
from studio.models.weights import WeightsError, load_strictly, read_tensors


class Flow(nn.Module):
    """Chunk-causal conditional flow matching of CosyVoice 2 or 3; its state has the names of `flow.pt`."""

    encoder: UpsampleConformerEncoder | RepeatedTokens

    def __init__(
        self, config: FlowConfig | DitConfig, steps: int = FLOW_STEPS, guidance: float = GUIDANCE
    ) -> None:
        """steps: Euler steps of a solve, the same for all streams of this flow. guidance: of those that name none."""
        super().__init__()
        self.config = config
        self.steps = steps
        self.guidance = guidance
        self.spk_embed_affine_layer = nn.Linear(config.speaker_dim, MEL_BINS)
        if isinstance(config, DitConfig):
            self.input_embedding = nn.Embedding(config.speech_tokens, MEL_BINS)
            self.pre_lookahead_layer = Lookahead(MEL_BINS, config.lookahead_channels)
            self.pre_lookahead_layer.conv2.slot = 0
            self.encoder = RepeatedTokens(self.pre_lookahead_layer)
            self.encoder_proj: nn.Module = nn.Identity()
            self.decoder = nn.ModuleDict({"estimator": DiffusionTransformer(config)})
        else:
            self.input_embedding = nn.Embedding(config.speech_tokens, config.encoder_dim)
            self.encoder = UpsampleConformerEncoder(config)
            self.encoder_proj = nn.Linear(config.encoder_dim, MEL_BINS)
            self.decoder = nn.ModuleDict({"estimator": CausalConditionalDecoder(config)})

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, Tensor],
        estimator_head_dim: int = 64,
        source: str = "flow",
        steps: int = FLOW_STEPS,
        guidance: float = GUIDANCE,
    ) -> Flow:
        """Build the flow that fits a checkpoint's tensors, laid out for inference.

        Raises:  WeightsError naming the first key that does not fit.
        """
        try:
            config = config_of(tensors, estimator_head_dim)
        except WeightsError as error:
            raise WeightsError(f"{source}: {error}") from error
        flow = cls(config, steps, guidance)
        load_strictly(flow, tensors, source)
        lay_out_for_products(flow)
        return flow.eval()

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        estimator_head_dim: int = 64,
        steps: int = FLOW_STEPS,
        guidance: float = GUIDANCE,
    ) -> Flow:
        """Build the flow of a `.pt` or `.safetensors` file.

        Raises:  WeightsError if the file cannot be read or does not fit.
        """
        return cls.from_tensors(read_tensors(path), estimator_head_dim, str(path), steps, guidance)

    @property
    def estimator(self) -> CausalConditionalDecoder | DiffusionTransformer:
        return self.decoder["estimator"]

    @property
    def device(self) -> torch.device:
        return self.spk_embed_affine_layer.weight.device

    def embed_tokens(self, tokens: Tensor) -> Tensor:
        """Embed speech tokens [..., T] -> [..., T, C]; ids below 0 count as 0."""
        return self.input_embedding(tokens.clamp(min=0))

    def speaker(self, embedding: Tensor) -> Tensor:
        """Speaker embedding [..., 192], of any length, to the estimator's width [..., 80]."""
        return self.spk_embed_affine_layer(F.normalize(embedding, dim=-1))

    @torch.inference_mode()
    def synthesize(
        self,
        tokens: Tensor,
        prompt_tokens: Tensor,
        prompt_mel: Tensor,
        embedding: Tensor,
        streaming: bool = True,
        final: bool = True,
        guidance: float | None = None,
    ) -> Tensor:
        """Solve one whole sequence at once, without a cache.

        Args:    tokens: int [T] to be voiced.
                 prompt_tokens: int [P]. prompt_mel: [2 P, 80]. embedding: [192].
                 streaming: block-causal attention, as a stream sees it.
                 final: whether the tokens end here; if not, the last 3 are looked at but not voiced.
                 guidance: None for the flow's own.
        Returns: [80, 2 T], or [80, 2 (T - 3)] if not final.
        Raises:  ValueError if prompt and speech pass 15000 frames.
        """
        joined = self.embed_tokens(torch.cat([prompt_tokens, tokens])[None])
        ahead = None
        if not final:
            joined, ahead = joined[:, :-LOOKAHEAD_TOKENS], joined[:, -LOOKAHEAD_TOKENS:]
        mu = self.encoder_proj(self.encoder(joined, ahead, streaming=streaming))[0]  # [F, 80]
        frames = mu.shape[0]
        check_length(frames)
        cond = F.pad(prompt_mel, (0, 0, 0, frames - prompt_mel.shape[0]))
        speaker = self.speaker(embedding).expand(frames, -1)
        view = WholeView(visibility(frames, None, BLOCK_FRAMES if streaming else None, mu.device))
        noise = start_noise(mu.device)[:frames]
        mel = self.solve(mu, speaker, cond, noise, [view] * self.steps, guidance)
        return mel[prompt_mel.shape[0] :].T

    @torch.inference_mode()
    def prepare_prompt(
        self,
        tokens: Tensor,
        mel: Tensor,
        embedding: Tensor,
        tail_tokens: int = 0,
        storage: torch.dtype = torch.float32,
        guidance: float | None = None,
    ) -> PromptFlowCache:
        """Compute the blocks of a voice prompt that do not depend on what is spoken, once for all streams.

        Args:    tokens: int [n]. mel: [2 n, 80], natural log. embedding: [192].
                 tail_tokens: the prompt loses its oldest tokens so that as many are left behind its last
                 block (if a block remains). With 0 that block waits for the first 3 spoken tokens, so every
                 stream computes it; with 3 or more it is cached, and the first block takes 25 - tail_tokens.
                 storage: type in which keys and values are kept, float32 or float16.
                 guidance: of this prompt's blocks and of all its streams; None for the flow's own.
        Raises:  ValueError if the mel is not twice as long as the tokens, or longer than the flow's noise.
        """
        preparation = self.begin_prompt(tokens, mel, embedding, tail_tokens, storage, guidance)
        preparation.advance()
        return preparation.cache()

    @torch.inference_mode()
    def begin_prompt(
        self,
        tokens: Tensor,
        mel: Tensor,
        embedding: Tensor,
        tail_tokens: int = 0,
        storage: torch.dtype = torch.float32,
        guidance: float | None = None,
    ) -> PromptPreparation:
        """As `prepare_prompt`, but computed a few blocks at a time by whoever asks the result to advance."""
        own = self.guidance if guidance is None else guidance
        return PromptPreparation(self, tokens, mel, embedding, tail_tokens, storage, own)

    def open(self, prompt: PromptFlowCache) -> FlowState:
        """Begin a stream after a prepared prompt; cheap, and the prompt stays as it is."""
        return FlowState(prompt)

    @torch.inference_mode()
    def step(
        self, states: Sequence[FlowState], new_tokens: Sequence[Tensor], final: Sequence[bool]
    ) -> list[Tensor]:
        """Give each stream its next tokens and compute every block that is whole, all streams in one batch.

        Args:    states: B streams, each once.
                 new_tokens: int [T_i], 0 or more, after all those given before.
                 final: no token follows. Until then a block waits for the 3 tokens after it.
        Returns: B mels [80, F_i] that continue the stream's earlier ones, without the prompt; F_i may be 0.
                 Over a whole stream sum F_i = 2 x tokens.
        Raises:  ValueError, before any stream is changed, if one is closed, given twice or longer than 300 s.
        Owner:   mutates each stream only when the whole batch is done; after an error all stand as before.
        """
        return stream.step(self, states, new_tokens, final)

    def solve(
        self,
        mu: Tensor,
        speaker: Tensor,
        cond: Tensor,
        noise: Tensor,
        views: Sequence[View],
        guidance: float | Tensor | None = None,
    ) -> Tensor:
        """Integrate the flow for frames in a row, with guidance.

        Args:    mu, speaker, cond, noise: [F, 80]. views: one for each step, of a batch of two.
                 guidance: see `solver.solve`; None for the flow's own.
        Returns: [F, 80]
        """
        given = torch.cat([mu, speaker, cond], dim=-1)
        conditions = torch.stack([given, torch.zeros_like(given)])  # with, and without any condition
        per_layer = self.estimator.time_features(flow_times(self.steps).to(mu.device)[:-1])
        times = [[feature[step : step + 1] for feature in per_layer] for step in range(len(per_layer[0]))]

        def velocity(x: Tensor, step: int) -> Tensor:
            return self.estimator(x.expand(2, -1, -1), conditions, times[step], views[step])

        return solve(velocity, noise, self.steps, self.guidance if guidance is None else guidance)

    def training_loss(
        self,
        tokens: Tensor,
        token_len: Tensor,
        mel: Tensor,
        mel_len: Tensor,
        embedding: Tensor,
        generator: torch.Generator | None,
        streaming: bool,
    ) -> Tensor:
        """Mean squared error of the velocity at random flow times.

        Args:    tokens: int64 [B, T] padded with anything. token_len: int64 [B].
                 mel: [B, F, 80], time first, padded; F <= 2 T. mel_len: int64 [B], at most 2 * token_len.
                 embedding: [B, 192] of any length.
                 generator: on the device of `mel`; None uses the global one.
                 streaming: block-causal attention for this batch; draw it anew for each, half the time true.
        Returns: scalar float32
        """
        drawn = training.draw(mel, mel_len, generator)
        return self.matching_loss(
            tokens,
            token_len,
            mel,
            mel_len,
            embedding,
            drawn.noise,
            drawn.time,
            drawn.keep,
            drawn.prompt_frames,
            streaming,
        )

    def matching_loss(
        self,
        tokens: Tensor,
        token_len: Tensor,
        mel: Tensor,
        mel_len: Tensor,
        embedding: Tensor,
        noise: Tensor,
        time: Tensor,
        keep: Tensor,
        prompt_frames: Tensor,
        streaming: bool,
    ) -> Tensor:
        """The loss for given randomness (`training.Draw`), free of it itself."""
        drawn = training.Draw(noise, time, keep, prompt_frames)
        frames = mel.shape[1]
        encoded = self.encoder(self.embed_tokens(tokens), lengths=token_len, streaming=streaming)
        mu = self.encoder_proj(encoded)[:, :frames]  # [B, F, 80]
        speaker = self.speaker(embedding)[:, None].expand(-1, frames, -1)
        cond = training.prompt_of(mel, drawn)
        conditions = torch.cat([mu, speaker.to(mu.dtype), cond.to(mu.dtype)], dim=-1) * keep[:, None, None]
        x, target = training.noisy_mel(mel, drawn)
        view = WholeView(visibility(frames, mel_len, BLOCK_FRAMES if streaming else None, mel.device))
        velocity = self.estimator(x, conditions, self.estimator.time_features(time), view)
        return training.masked_error(velocity, target, mel_len)


def check_length(frames: int) -> None:
    """Raise ValueError if a sequence, prompt included, is longer than the start noise."""
    if frames > NOISE_FRAMES:
        raise ValueError(f"{frames} mel frames with the prompt, but the flow's noise ends at {NOISE_FRAMES}")
