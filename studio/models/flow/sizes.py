"""Sizes of the flow, read off the shapes of its tensors; constants of the model that no tensor shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from studio import speech
from studio.models.weights import WeightsError

MEL_BINS = speech.MEL_BINS
FRAMES_PER_TOKEN = speech.MEL_FRAMES_PER_TOKEN
BLOCK_TOKENS = speech.BLOCK_TOKENS
BLOCK_FRAMES = BLOCK_TOKENS * FRAMES_PER_TOKEN
LOOKAHEAD_TOKENS = speech.LOOKAHEAD_TOKENS
SPEAKER_DIM = speech.SPEAKER_DIM
NOISE_FRAMES = 15000  # 300 s, prompt included: the length of the fixed start noise
FLOW_STEPS = 10
GUIDANCE = 0.7
TIME_FEATURES = 4 * MEL_BINS  # the sine features are as wide as the estimator's input


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """Dimensions of one flow checkpoint.

    All but `estimator_head_dim` are visible in the tensors' shapes (`from_tensors`).
    """

    speech_tokens: int = 6561
    encoder_dim: int = 512
    encoder_heads: int = 8
    encoder_feed_forward: int = 2048
    encoder_blocks: int = 6
    upsampled_blocks: int = 4
    estimator_channels: int = 256
    estimator_heads: int = 8
    estimator_head_dim: int = 64
    estimator_mid_blocks: int = 12
    estimator_transformers: int = 4  # in each of the down, mid and up blocks
    estimator_feed_forward: int = 1024
    speaker_dim: int = SPEAKER_DIM

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], estimator_head_dim: int = 64) -> FlowConfig:
        """Infer the sizes from a checkpoint's tensors.

        Args:    tensors: by the names of `flow.pt`.
                 estimator_head_dim: width of one attention head; not visible in any shape, 64 officially.
        Raises:  WeightsError if a tensor needed for this is missing, or the head width does not divide.
        """
        down = "decoder.estimator.down_blocks.0."
        if any(name.startswith("decoder.estimator.down_blocks.1.") for name in tensors):
            raise WeightsError("decoder.estimator.down_blocks.1: only one down block is known to this flow")
        attention_width, channels = _shape(tensors, down + "1.0.attn1.to_q.weight")
        if attention_width % estimator_head_dim:
            raise WeightsError(
                f"{down}1.0.attn1.to_q.weight: width {attention_width} is no multiple of the head width "
                f"{estimator_head_dim}"
            )
        speech_tokens, encoder_dim = _shape(tensors, "input_embedding.weight")
        return cls(
            speech_tokens=speech_tokens,
            encoder_dim=encoder_dim,
            encoder_heads=_shape(tensors, "encoder.encoders.0.self_attn.pos_bias_u")[0],
            encoder_feed_forward=_shape(tensors, "encoder.encoders.0.feed_forward.w_1.weight")[0],
            encoder_blocks=_count(tensors, r"encoder\.encoders\.(\d+)\."),
            upsampled_blocks=_count(tensors, r"encoder\.up_encoders\.(\d+)\."),
            estimator_channels=channels,
            estimator_heads=attention_width // estimator_head_dim,
            estimator_head_dim=estimator_head_dim,
            estimator_mid_blocks=_count(tensors, r"decoder\.estimator\.mid_blocks\.(\d+)\."),
            estimator_transformers=_count(tensors, r"decoder\.estimator\.down_blocks\.0\.1\.(\d+)\."),
            estimator_feed_forward=_shape(tensors, down + "1.0.ff.net.0.proj.weight")[0],
            speaker_dim=_shape(tensors, "spk_embed_affine_layer.weight")[1],
        )


@dataclass(frozen=True, slots=True)
class DitConfig:
    """Dimensions of a CosyVoice3 flow: its estimator, and the look-ahead layer before it."""

    speech_tokens: int = 6561
    lookahead_channels: int = 1024
    channels: int = 1024
    heads: int = 16
    head_dim: int = 64
    blocks: int = 22
    feed_forward: int = 2048
    speaker_dim: int = SPEAKER_DIM

    @property
    def estimator_heads(self) -> int:
        return self.heads

    @property
    def estimator_head_dim(self) -> int:
        return self.head_dim

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> DitConfig:
        """Infer the sizes from a checkpoint's tensors. Raises WeightsError if one needed for this is missing."""
        estimator = "decoder.estimator."
        channels = _shape(tensors, estimator + "proj_out.weight")[1]
        head_dim = 2 * _shape(tensors, estimator + "rotary_embed.inv_freq")[0]
        return cls(
            speech_tokens=_shape(tensors, "input_embedding.weight")[0],
            lookahead_channels=_shape(tensors, "pre_lookahead_layer.conv1.weight")[0],
            channels=channels,
            heads=channels // head_dim,
            head_dim=head_dim,
            blocks=_count(tensors, r"decoder\.estimator\.transformer_blocks\.(\d+)\."),
            feed_forward=_shape(tensors, estimator + "transformer_blocks.0.ff.ff.0.0.weight")[0],
            speaker_dim=_shape(tensors, "spk_embed_affine_layer.weight")[1],
        )


def config_of(tensors: Mapping[str, Tensor], estimator_head_dim: int = 64) -> FlowConfig | DitConfig:
    """The sizes of the flow of either version; see `FlowConfig.from_tensors`. Raises WeightsError."""
    if "decoder.estimator.rotary_embed.inv_freq" in tensors:
        return DitConfig.from_tensors(tensors)
    return FlowConfig.from_tensors(tensors, estimator_head_dim)


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...]:
    if name not in tensors:
        raise WeightsError(f"{name} is missing, so this is no flow checkpoint")
    return tuple(tensors[name].shape)


def _count(tensors: Mapping[str, Tensor], pattern: str) -> int:
    numbers = {int(found.group(1)) for name in tensors if (found := re.match(pattern, name))}
    return max(numbers) + 1 if numbers else 0
