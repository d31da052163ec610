"""What a set of settings will hold and how fast it will be, from sizes and measured rates. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from studio.checkpoint import Checkpoint, read_lm_config
from studio.settings import Settings
from studio.speech import TOKEN_RATE_HZ

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
TEXT_IDS_PER_S = 12.0
"""Text ids of a second of speech, of the text and of the prompt's transcript: phonemes, the densest form."""


@dataclass(frozen=True, slots=True)
class LmSizes:
    """What the KV cache of a speech LM depends on. weight_bytes: of its file."""

    layers: int
    kv_heads: int
    head_size: int
    weight_bytes: int

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> LmSizes:
        """From the config.json of its tokenizer folder, and its weight file. Raises CheckpointError for a bad one."""
        sizes = read_lm_config(checkpoint.tokenizer_folder / "config.json")
        files = (checkpoint.folder / name for name in ("llm.safetensors", "llm.pt"))
        return cls(
            sizes["num_hidden_layers"],
            sizes["num_key_value_heads"],
            sizes.get("head_dim") or sizes["hidden_size"] // sizes["num_attention_heads"],
            next((f.stat().st_size for f in files if f.is_file()), 0),
        )


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the LM runs, and what was measured there. memory_bytes: of the GPU; 0 on a CPU."""

    device: str
    memory_bytes: int
    audio_s_per_s: float | None
    first_sound_s: float | None

    @property
    def memory_unknown(self) -> bool:
        """Whether nothing can be said of what fits: a GPU whose memory no worker has told yet."""
        return self.device != "cpu" and not self.memory_bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """Figures of a set of settings. streams: requests at once; bound: the setting or measure that stops them there."""

    kv_bytes_per_token: int
    kv_blocks: int
    kv_tokens: int
    request_tokens: int
    request_blocks: int
    streams: int
    bound: str
    first_audio_s: float | None
    audio_s_per_s: float | None
    fits: bool
    """Whether one request of max_model_len has its place in the KV cache."""


def plan(settings: Settings, sizes: LmSizes, machine: Machine, prompt_s: float = 5.0, clip_s: float = 8.0) -> Plan:
    """What a stream of clip_s seconds after a prompt of prompt_s needs, and how many fit."""
    dtype = settings.dtype
    if dtype == "auto":
        dtype = "float32" if machine.device == "cpu" else "bfloat16"
    kept_in = dtype if settings.kv_cache_dtype == "auto" else settings.kv_cache_dtype
    per_token = 2 * sizes.layers * sizes.kv_heads * sizes.head_size * DTYPE_BYTES[kept_in]
    if machine.device == "cpu":
        cache_bytes = settings.kv_cache_gib * 2**30
    else:
        cache_bytes = max(0.0, machine.memory_bytes * settings.gpu_memory_utilization - sizes.weight_bytes)
    blocks = int(cache_bytes // (per_token * settings.block_size))
    tokens = round((prompt_s + clip_s) * (TOKEN_RATE_HZ + TEXT_IDS_PER_S)) + 2
    request_blocks = -(-tokens // settings.block_size)
    rate = machine.audio_s_per_s
    ceilings = {
        "kv_cache": blocks // request_blocks, "max_num_seqs": settings.max_num_seqs,
        "max_running": settings.max_running,
    } | ({} if rate is None else {"measured_rate": max(1, int(rate))})  # fmt: skip
    bound = min(ceilings, key=lambda name: ceilings[name])
    streams = ceilings[bound]
    first_s = machine.first_sound_s
    if first_s is not None and rate is not None:
        # Newcomers share the machine with the others; alone they get the measured time.
        first_s *= max(1.0, streams / max(rate, 1e-3))
    return Plan(
        per_token, blocks, blocks * settings.block_size, tokens, request_blocks, streams, bound, first_s, rate,
        machine.memory_unknown or blocks * settings.block_size >= settings.max_model_len,
    )  # fmt: skip
