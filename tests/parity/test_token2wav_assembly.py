"""What token2wav is put together of on which device, and how much of a GPU it takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from studio.backends.torch_assembly import Assembly
from studio.backends.torch_token2wav import assembly_of
from studio.errors import SettingsError
from studio.models.flow import Flow
from studio.models.flow.sizes import DitConfig, FlowConfig
from studio.models.hift.window import WindowedHift
from studio.protocols import RowStep
from studio.settings import Settings
from tests.parity.test_token2wav_torch import assert_same_sound, mini, speak, speech, voice

VERSION_2, VERSION_3 = (cast(Flow, SimpleNamespace(config=config)) for config in (FlowConfig(), DitConfig()))


def test_pages_and_half_precision_are_for_cosyvoice2_on_a_gpu() -> None:
    gpu, cpu = Assembly("cuda"), Assembly("cpu")
    assert gpu.paged(VERSION_2) and not gpu.paged(VERSION_3) and not cpu.paged(VERSION_2)
    assert (gpu.storage(True), gpu.compute(VERSION_2)) == (torch.float8_e4m3fn, torch.bfloat16)
    assert (gpu.storage(False), cpu.storage(True)) == (torch.float32, torch.float32)
    wanted = Assembly("cuda", flow_cache="pages", flow_precision="bfloat16", flow_dtype="float16")
    assert wanted.paged(VERSION_3) and wanted.compute(VERSION_3) == torch.float32
    assert (wanted.storage(True), wanted.compute(VERSION_2)) == (torch.bfloat16, torch.float16)


def test_settings_reach_the_assembly() -> None:
    given = Settings(
        flow_cache="pages", flow_precision="fp8", flow_dtype="float16", vocoder_precision="tf32", flow_pool_gib=2,
        voice_cache=3, voice_cache_gib=1, gpu_memory_utilization=0.4,
    )  # fmt: skip
    expected = Assembly("cuda", "pages", "fp8", "float16", 2**31, "tf32", 3, 2**30, 0.4)
    assert assembly_of(given.for_worker(), "cuda") == expected


def test_computing_in_half_precision_needs_pages() -> None:
    with pytest.raises(SettingsError, match="flow_dtype"):
        mini("grown", flow_dtype="bfloat16")
    made = mini("pages", flow_dtype="bfloat16", flow_precision="fp8", pages=4)
    facts = made.facts()
    assert (facts["flow_cache"], facts["flow_dtype"], facts["flow_precision"]) == (
        "pages",
        "bfloat16",
        "float8_e4m3fn",
    )
    assert facts["flow_pages"] > 4 and isinstance(made._hift, WindowedHift)


def test_vocoder_is_in_float16_on_a_gpu_and_in_float32_alone_on_a_cpu() -> None:
    assert (Assembly("cuda").convolving(), Assembly("cpu").convolving()) == ("float16", "float32")
    assert Assembly("cuda", vocoder_precision="tf32").convolving() == "tf32"
    assert mini("pages", vocoder_precision="float32", pages=4).facts()["flow_cache"] == "pages"
    for precision in ("tf32", "float16"):
        with pytest.raises(SettingsError, match="vocoder_precision"):
            mini("pages", vocoder_precision=precision, pages=4)


def test_pool_without_any_page_is_refused() -> None:
    with pytest.raises(ValueError, match="pages"):
        mini("pages", pages=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_steps_wait_once_and_sound_as_on_a_cpu() -> None:
    """Sizes of the mini weights; in float32, so that only the order of sums differs."""
    row = (voice(0, 40), speech(0, 98))
    (expected,) = speak(mini("pages", flow_steps=4), [row], 50)
    made = mini(
        "auto", flow_steps=4, device="cuda", flow_precision="float32", flow_dtype="float32", pool_bytes=2**30
    )
    made.warm_up()
    assert made.facts()["flow_cache"] == "pages" and made.facts()["flow_graphs"] > 8
    assert_same_sound(speak(made, [row], 50)[0], expected)
    for row_id in "abc":
        first = made.open(row_id, row[0], 7)
    ahead = np.zeros(3, np.int32)
    torch.cuda.set_sync_debug_mode("error")  # for all but the event that `fetch` waits for
    try:
        results = made.step(
            [RowStep(row_id, np.asarray(row[1][:first], np.int32), ahead, False) for row_id in "abc"]
        )
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(result.error is None for result in results)


@pytest.mark.parametrize(
    ("capability", "kept"),
    [((9, 0), torch.float8_e4m3fn), ((8, 9), torch.float8_e4m3fn), ((8, 6), torch.bfloat16), ((7, 5), torch.float16)],
)
def test_a_gpu_keeps_and_computes_in_what_it_has(capability: tuple[int, int], kept: torch.dtype) -> None:
    how = Assembly("cuda", capability=capability)
    how.refuse_what_the_gpu_lacks()
    assert how.storage(paged=True) == kept


def test_fp8_is_refused_on_a_gpu_that_cannot_read_it() -> None:
    with pytest.raises(SettingsError, match=r"flow_precision.*8\.6"):
        Assembly("cuda", flow_precision="fp8", capability=(8, 6)).refuse_what_the_gpu_lacks()
