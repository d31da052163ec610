"""The token2wav worker program: `python -m studio.backends.torch_token2wav --channel-fd N`.

It loads flow, vocoder and prompt encoder of a checkpoint and answers for them: all torch work of the rows in one
thread, in the order asked; the prompt encoder in a thread of its own.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml

from studio import heap
from studio.backends.gpu_turn import gpu_turn
from studio.backends.serve import Handler, Report, Service, run_worker
from studio.backends.torch_assembly import Assembly, assemble
from studio.backends.torch_device import raise_if_lost
from studio.backends.torch_rows import TorchToken2Wav
from studio.backends.torch_upstream import UpstreamToken2Wav
from studio.backends.torch_voices import FlowKey
from studio.checkpoint import weight_file
from studio.errors import CheckpointError, SettingsError, StudioError, Token2WavError
from studio.gpu_shares import models_known
from studio.models import weights
from studio.models.flow import Flow
from studio.models.flow.sizes import FLOW_STEPS, GUIDANCE
from studio.models.hift import Hift, load_hift
from studio.protocols import RowStep, StepResult, Token2WavStats
from studio.shelf import ShelfWriter
from studio.speech import Float32, VoicePrompt
from studio.threads import thread_count

if TYPE_CHECKING:
    from studio.models.prompt.encoder import OnnxPromptEncoder

DEFAULT_HEAD_DIM = 64
ON_CPU = Assembly()


def load_token2wav(
    folder: Path,
    how: Assembly = ON_CPU,
    *,
    flow_steps: int = FLOW_STEPS,
    guidance: float = GUIDANCE,
    upstream: bool = False,
) -> TorchToken2Wav | UpstreamToken2Wav:
    """Flow and vocoder of a checkpoint folder; upstream: streamed with upstream's faults, for comparing.

    Raises: CheckpointError naming the file and the first bad key; SettingsError for a pool that holds nothing.
    """
    try:
        flow_file, hift_file = weight_file(folder, "flow"), weight_file(folder, "hift")
        flow = Flow.from_file(flow_file, _estimator_head_dim(folder), flow_steps, guidance)
        hift = load_hift(weights.read_tensors(hift_file), str(hift_file))
    except weights.WeightsError as error:
        raise _as_studio_error(error, folder) from error
    if upstream and isinstance(hift, Hift):
        return UpstreamToken2Wav(flow, hift, device=how.device)
    if upstream:
        reason = "upstream_streaming is for CosyVoice2 alone; switch it off"
        raise CheckpointError("checkpoint.misfit", file=hift_file.name, folder=folder, reason=reason)
    try:
        return assemble(flow, hift, how)
    except weights.WeightsError as error:
        raise _as_studio_error(error, folder) from error
    except ValueError as error:
        raise SettingsError(
            "settings.bad", name="flow_pool_gib", value=how.pool_bytes / 2**30, reason=error
        ) from None


def _estimator_head_dim(folder: Path) -> int:
    """The one size that no tensor shows. The official yaml holds tags, not sizes; its head dimension is 64."""
    try:
        # CosyVoice3 needs none: its head dimension is in a tensor.
        sizes = yaml.safe_load((folder / "cosyvoice2.yaml").read_text(encoding="utf-8"))["sizes"]
        return int(sizes["flow"]["est_head_dim"])
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return DEFAULT_HEAD_DIM


def _as_studio_error(error: Exception, folder: Path) -> CheckpointError:
    """The room of the models says "FILE: what is wrong"."""
    file, _, reason = str(error).partition(": ")
    return CheckpointError("checkpoint.misfit", file=Path(file).name, folder=folder, reason=reason)


def _wrap_error(error: Exception) -> StudioError:
    return Token2WavError("speech.token2wav_failed", reason=str(error))


async def _setup(settings: dict[str, Any], report: Report) -> Service:
    """Load flow, vocoder and prompt encoder. settings: rows of the settings table, of which others are passed over."""
    from studio.models.prompt.encoder import OnnxPromptEncoder
    from studio.models.prompt.presets import read_presets

    began_s = time.monotonic()
    folder = Path(settings["model_dir"])
    device = _device(settings.get("device", "auto"))
    threads = thread_count("token2wav", settings, device, len(os.sched_getaffinity(0)))
    torch.set_num_threads(threads)
    report("stage.weights", 0.3)
    with gpu_turn(Path(settings.get("cache_dir", folder)), device):
        token2wav = load_token2wav(
            folder,
            assembly_of(settings, device),
            flow_steps=settings.get("flow_steps", FLOW_STEPS),
            guidance=settings.get("guidance", GUIDANCE),
            upstream=settings.get("upstream_streaming", False),
        )
        try:
            encoder = OnnxPromptEncoder(folder, threads=threads, device=device)
        except weights.WeightsError as error:
            raise _as_studio_error(error, folder) from error
        presets = read_presets(folder)
        report("stage.warming", 0.6)
        stepping = ThreadPoolExecutor(1, "token2wav")
        warming = partial(token2wav.warm_up, lambda done: report("stage.warming", 0.6 + 0.39 * done))
        loaded_s = time.monotonic()
        await asyncio.get_running_loop().run_in_executor(stepping, warming)
    heap.settle()
    shelf = ShelfWriter()
    facts = {
        "device": device,
        "shelf": shelf.path,
        "threads": threads,
        "prompt_encoder": encoder.provider,
        **token2wav.facts(),
        "warming_s": round(time.monotonic() - loaded_s, 2),
        "start_s": round(time.monotonic() - began_s, 2),
    }
    return Service(_handlers(token2wav, encoder, stepping, presets, shelf), facts=facts)


def assembly_of(settings: Mapping[str, Any], device: str) -> Assembly:
    """How the settings want flow and vocoder put together on a device."""
    named = (
        "flow_cache", "flow_precision", "flow_dtype", "vocoder_precision", "voice_cache", "first_block_tokens",
    )  # fmt: skip
    return Assembly(
        device,
        pool_bytes=int(settings.get("flow_pool_gib", 0) * 2**30),
        voice_cache_bytes=int(settings.get("voice_cache_gib", 0) * 2**30),
        lm_share=settings.get("gpu_memory_utilization", 0.0),
        models=models_known(settings),
        **{name: settings[name] for name in named if name in settings},
    )


def _handlers(
    token2wav: TorchToken2Wav | UpstreamToken2Wav,
    encoder: OnnxPromptEncoder,
    stepping: ThreadPoolExecutor,
    presets: dict[str, VoicePrompt],
    shelf: ShelfWriter,
) -> dict[str, Handler]:
    """What the worker answers. stepping: the one thread that does all torch work of the rows."""
    from studio.models.prompt.presets import read_uploaded

    loop = asyncio.get_running_loop()
    encoding = ThreadPoolExecutor(1, "prompt encoder")

    async def in_order(method: Callable[..., Any], **args: Any) -> Any:
        try:
            return await loop.run_in_executor(stepping, partial(method, **args))
        except RuntimeError as error:
            raise_if_lost(error)
            raise

    wanted: Counter[FlowKey] = Counter()

    async def prepared(voice: VoicePrompt, guidance: float | None, turn: Callable[[], int]) -> int:
        """What the last turn gives: one after the other, so that steps of open rows come in between."""
        key = token2wav.key_of(voice, guidance)
        wanted[key] += 1
        done = 0
        try:
            while not done:
                done = await in_order(turn)
        finally:
            wanted[key] -= 1
            if not wanted[key]:
                del wanted[key]
                if not done:
                    # After the turn that may still run: of a voice that nobody waits for any more, nothing is kept.
                    stepping.submit(token2wav.give_up, voice, guidance)
        return done

    async def prepare(voice: VoicePrompt, guidance: float | None = None) -> None:
        await prepared(voice, guidance, partial(token2wav.prepare, voice, guidance))

    async def open_row(row_id: str, voice: VoicePrompt, seed: int, guidance: float | None = None) -> int:
        def open_if_ready() -> int:
            # In one turn: of many requests at once each would else wait for every other one twice.
            ready = token2wav.prepare(voice, guidance)
            return token2wav.open(row_id, voice, seed, guidance) if ready else 0

        return await prepared(voice, guidance, open_if_ready)

    async def encode(samples: Float32, sample_rate_hz: int, prompt_text: str) -> VoicePrompt:
        return await loop.run_in_executor(encoding, encoder.encode, samples, sample_rate_hz, prompt_text)

    async def stats() -> Token2WavStats:
        # Not behind a running step: who looks at figures must not wait, and plain reads need no order.
        return token2wav.stats()

    async def given_presets() -> dict[str, VoicePrompt]:
        return presets

    async def read_voices(data: bytes) -> dict[str, VoicePrompt]:
        return await loop.run_in_executor(encoding, read_uploaded, data, token2wav.speech_codes)

    def stepped(rows: list[RowStep], on_shelf: bool) -> list[StepResult] | tuple[list[StepResult], list[int]]:
        began_s, lengths = time.monotonic(), []
        results = token2wav.step(rows)
        if on_shelf:
            lengths = shelf.put([result.samples for result in results if result.samples is not None])
            results = [replace(result, samples=None) for result in results]
        if results:
            results[0] = replace(results[0], worker_s=time.monotonic() - began_s)
        return (results, lengths) if on_shelf else results

    async def step(rows: list[RowStep], on_shelf: bool = False) -> Any:
        return await in_order(stepped, rows=rows, on_shelf=on_shelf)

    return {
        "step": step, "drop": partial(in_order, token2wav.drop), "open": open_row, "prepare": prepare, "encode": encode,
        "presets": given_presets, "read_voices": read_voices, "stats": stats,
    }  # fmt: skip


def _device(wanted: str) -> str:
    return ("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted


if __name__ == "__main__":
    run_worker(_setup, _wrap_error)
