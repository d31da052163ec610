"""What a set of settings will hold and how fast it will be, from sizes and measured costs. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from studio.checkpoint import Checkpoint, read_lm_config
from studio.engine.step_cost import Costs
from studio.engine.token_hop import HopSchedule
from studio.gpu_shares import engine_cache_bytes
from studio.settings import Settings
from studio.speech import BLOCK_TOKENS, MEL_FRAMES_PER_TOKEN, TOKEN_RATE_HZ

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
TEXT_IDS_PER_S = 12.0
"""Text ids of a second of speech, of the text and of the prompt's transcript: phonemes, the densest form."""
MOST_STREAMS = 512
NOT_MEASURED = Costs()
SHARED = {"cpu": 0.3, "cuda": 0.9}
"""Guessed part of a step that costs the same however many it serves; used until steps of several sizes were seen."""


@dataclass(frozen=True, slots=True)
class LmSizes:
    """What the KV cache of a speech LM depends on. positions: the most tokens that it reads; 0: unknown."""

    layers: int
    kv_heads: int
    head_size: int
    weight_bytes: int
    positions: int = 0

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
            sizes.get("max_position_embeddings", 0),
        )


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the models run, and what was measured there.

    memory_bytes: of the GPU; 0 on a CPU. lm_mb: memory of the speech LM's processes now, under the settings `present`.
    flow_frame_bytes: flow state of a mel frame, under those settings; 0 if nobody has told. flow_pool_bytes: of all its
    pages; 0 where it keeps none.
    """

    device: str
    memory_bytes: int = 0
    costs: Costs = NOT_MEASURED
    lm_mb: float | None = None
    present: Settings | None = None
    flow_frame_bytes: int = 0
    flow_pool_bytes: int = 0

    @property
    def memory_unknown(self) -> bool:
        """Whether nothing can be said of what fits: a GPU whose memory no worker has told yet."""
        return self.device != "cpu" and not self.memory_bytes


@dataclass(frozen=True, slots=True)
class Workload:
    """Clips of clip_s seconds after prompts of prompt_s. streams: so many at once; 0: as many as the plan allows."""

    prompt_s: float = 5.0
    clip_s: float = 8.0
    streams: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Figures of a set of settings. streams: requests at once; bound: the setting or stage that stops them there.

    engine_tokens: of kv_tokens, those of one of lm_engines. flow_bytes: state of one stream in the flow. first_audio_s
    and audio_s_per_s: of so many streams, each asking anew as soon as it has ended. lm_mb: memory of the speech LM's
    processes on a CPU.
    """

    kv_bytes_per_token: int
    kv_blocks: int
    kv_tokens: int
    engine_tokens: int
    request_tokens: int
    request_blocks: int
    flow_bytes: int
    streams: int
    bound: str
    first_audio_s: float | None
    audio_s_per_s: float | None
    lm_mb: float | None
    positions: int
    """The longest that the checkpoint reads; 0: unknown."""
    fits: bool
    """Whether one request of max_model_len has its place in the KV cache."""


USUAL = Workload()


def plan(settings: Settings, sizes: LmSizes, machine: Machine, workload: Workload = USUAL) -> Plan:
    """What such a load needs, how many streams of it fit, and how fast they are."""
    per_token = _kv_bytes_per_token(settings, sizes, machine)
    engines, size = settings.lm_engines, settings.block_size
    own_blocks = int(_cache_bytes(settings, sizes, machine) // (per_token * size))
    blocks = engines * own_blocks
    seconds = workload.prompt_s + workload.clip_s
    tokens = round(seconds * (TOKEN_RATE_HZ + TEXT_IDS_PER_S)) + 2
    request_blocks = -(-tokens // size)
    flow_bytes = round(_flow_frames(settings, machine, workload) * _flow_frame_bytes(settings, machine))
    speed = Speed(settings, machine.costs)
    ceilings = {
        "kv_cache": engines * (own_blocks // request_blocks), "max_num_seqs": settings.max_num_seqs,
        "max_running": settings.max_running, **speed.ceilings(),
    }  # fmt: skip
    if flow_bytes and (pool := _flow_pool_bytes(settings, machine)):
        ceilings["flow_memory"] = int(pool // flow_bytes)
    bound = min(ceilings, key=lambda name: ceilings[name])
    streams = workload.streams or max(1, ceilings[bound])
    first_s, audio_s_per_s = speed.of(streams, workload.clip_s)
    return Plan(
        per_token, blocks, blocks * size, own_blocks * size, tokens, request_blocks, flow_bytes, ceilings[bound], bound,
        first_s, audio_s_per_s, _lm_mb(settings, sizes, machine), sizes.positions,
        machine.memory_unknown or own_blocks * size >= settings.max_model_len,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast streams are, from what a step of each stage costs; the two stages work at the same time."""

    settings: Settings
    costs: Costs

    def lm(self, streams: int) -> float:
        """Seconds of sound that the speech LM makes tokens for in a second."""
        assert self.costs.lm is not None
        rows = min(streams, self.settings.max_num_seqs)
        return rows / self.costs.lm.seconds(rows) / TOKEN_RATE_HZ

    def token2wav(self, streams: int) -> float:
        """Seconds of sound that token2wav makes in a second, a block of each row at a time."""
        assert self.costs.token2wav is not None
        tokens = BLOCK_TOKENS * min(streams, self.settings.max_batch_rows)
        return tokens / self.costs.token2wav.seconds(tokens) / TOKEN_RATE_HZ

    def ceilings(self) -> dict[str, int]:
        """The most streams that each stage serves as fast as they are heard; at least one."""
        if self.costs.lm is None or self.costs.token2wav is None:
            return {}
        return {"lm": _most_in_time(self.lm), "token2wav": _most_in_time(self.token2wav)}

    def of(self, streams: int, clip_s: float) -> tuple[float | None, float | None]:
        """Seconds to the first audio and seconds of sound a second, of so many who ask anew when they have ended."""
        lm, token2wav = self.costs.lm, self.costs.token2wav
        if lm is None or token2wav is None:
            return None, None
        running = min(streams, self.settings.max_running)
        rate = min(self.lm(running), self.token2wav(running)) / running
        rows = min(running, self.settings.max_batch_rows)
        # A newcomer comes into the middle of a step of the others. Then it is first; where all of them run dry they
        # share that step with it.
        waits_s = token2wav.seconds(BLOCK_TOKENS * (rows if rate < 1 else running - 1)) / 2 if running > 1 else 0.0
        own_s = token2wav.seconds(BLOCK_TOKENS * (rows if rate < 1 else 1))
        block = self.settings.first_block_tokens
        tokens = HopSchedule(self.settings.first_hop_tokens).first_sound_tokens(block)
        first_s = tokens * lm.seconds(min(running, self.settings.max_num_seqs)) + waits_s + own_s
        takes_s = first_s + max(0.0, clip_s - block / TOKEN_RATE_HZ) / rate
        in_line_s = takes_s * (streams - running) / running
        return first_s + in_line_s, running * clip_s / takes_s


def _most_in_time(audio_s_per_s: Callable[[int], float]) -> int:
    late = (n for n in range(1, MOST_STREAMS + 1) if audio_s_per_s(n) < n)
    return max(1, next(late, MOST_STREAMS + 1) - 1)


def _kv_bytes_per_token(settings: Settings, sizes: LmSizes, machine: Machine) -> int:
    dtype = settings.dtype
    if dtype == "auto":
        dtype = "float32" if machine.device == "cpu" else "bfloat16"
    kept_in = dtype if settings.kv_cache_dtype == "auto" else settings.kv_cache_dtype
    return 2 * sizes.layers * sizes.kv_heads * sizes.head_size * DTYPE_BYTES[kept_in]


def _cache_bytes(settings: Settings, sizes: LmSizes, machine: Machine) -> float:
    """Of each of lm_engines."""
    if machine.device == "cpu":
        return settings.kv_cache_gib * 2**30 / settings.lm_engines
    share = int(machine.memory_bytes * settings.gpu_memory_utilization)
    return max(0, engine_cache_bytes(share, sizes.weight_bytes, settings.lm_engines))


def _flow_frames(settings: Settings, machine: Machine, workload: Workload) -> float:
    """Mel frames that are kept of a stream and its voice; in pages whole blocks, and a prompt is cut to end in one."""
    prompt, clip = (seconds * TOKEN_RATE_HZ for seconds in (workload.prompt_s, workload.clip_s))
    tokens = prompt + clip
    if machine.flow_pool_bytes:
        tail = min(prompt, BLOCK_TOKENS - settings.first_block_tokens)
        blocks = max(0, (prompt - tail) // BLOCK_TOKENS) + -(-(tail + clip) // BLOCK_TOKENS)
        tokens = BLOCK_TOKENS * blocks
    return tokens * MEL_FRAMES_PER_TOKEN


def _flow_frame_bytes(settings: Settings, machine: Machine) -> float:
    """What it takes now, in the precision of the settings in place of the present one."""
    on_gpu = machine.device != "cpu" and machine.flow_pool_bytes
    now, wanted = (
        DTYPE_BYTES[("fp8" if on_gpu else "float32") if s.flow_precision == "auto" else s.flow_precision]
        for s in (machine.present or settings, settings)
    )
    return machine.flow_frame_bytes * wanted / now


def _flow_pool_bytes(settings: Settings, machine: Machine) -> float:
    """For the flow's state of all streams; 0 where nothing but the device bounds it, and that is not known."""
    if settings.flow_pool_gib:
        return settings.flow_pool_gib * 2**30
    present = machine.present or settings
    if machine.flow_pool_bytes and not present.flow_pool_gib:
        left_more = present.gpu_memory_utilization - settings.gpu_memory_utilization
        return max(0.0, machine.flow_pool_bytes + machine.memory_bytes * left_more)
    return machine.memory_bytes * (1 - settings.gpu_memory_utilization)


def _lm_mb(settings: Settings, sizes: LmSizes, machine: Machine) -> float | None:
    """What it takes now, with weights and KV cache of the settings in place of the present ones."""
    if machine.device != "cpu" or machine.lm_mb is None or machine.present is None:
        return None
    before, after = (
        s.lm_engines * (sizes.weight_bytes + _cache_bytes(s, sizes, machine)) for s in (machine.present, settings)
    )
    return machine.lm_mb + (after - before) / 1e6
