"""The flow against the golden fixtures: encoder, estimator, whole, start noise."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from studio.models.flow import Flow
from studio.models.flow.layers import WholeView, mish, visibility
from studio.models.flow.sizes import BLOCK_FRAMES
from studio.models.flow.solver import flow_times, start_noise

full_size = pytest.param("full", marks=pytest.mark.full)


@pytest.fixture(scope="module")
def flows(weights):
    built: dict[str, Flow] = {}

    def flow(size: str) -> Flow:
        if size not in built:
            built[size] = Flow.from_tensors(
                weights(size, "flow"), estimator_head_dim=32 if size == "mini" else 64
            )
        return built[size]

    return flow


@torch.inference_mode()
def test_encoder_matches_golden_with_and_without_streaming_and_context(flows, golden, golden_tensors):
    flow, tokens = flows("mini"), golden_tensors("02_encoder_mini")["token"]
    embedded = flow.embed_tokens(tokens)[None]
    got = {"out_embedded": embedded[0]}
    for mode, streaming in (("offline", False), ("streaming", True)):
        got[f"out_full_{mode}"] = flow.encoder(embedded, streaming=streaming)[0]
        got[f"out_partial_{mode}"] = flow.encoder(embedded[:, :60], embedded[:, 60:], streaming=streaming)[0]
    got["out_mu_full_offline"] = flow.encoder_proj(got["out_full_offline"])
    assert golden.check("02_encoder_mini", got) == []


@pytest.mark.parametrize("size", ["mini", full_size])
@torch.inference_mode()
def test_estimator_matches_golden_for_two_lengths(flows, golden, golden_tensors, size):
    name = f"03_estimator_{size}"
    estimator, given = flows(size).estimator, golden_tensors(name)
    frames = given["x"].shape[-1]
    conditions = torch.cat(
        [given["mu"].mT, given["spks"][:, None].expand(-1, frames, -1), given["cond"].mT], dim=-1
    )
    times = estimator.time_features(given["t"])
    lengths = given["mask"].sum((1, 2)).long()
    got = {}
    for mode, block in (("offline", None), ("streaming", BLOCK_FRAMES)):
        view = WholeView(visibility(frames, lengths, block, conditions.device))
        velocity = estimator(given["x"].mT, conditions, times, view).mT
        got[f"out_{mode}"] = velocity * given["mask"]
    assert golden.check(name, got) == []


@pytest.mark.parametrize("size", ["mini", full_size])
@torch.inference_mode()
def test_flow_matches_golden_mel(flows, golden, golden_tensors, size):
    name = f"04_flow_{size}"
    flow, given = flows(size), golden_tensors(name)
    got = {"out_spks": flow.speaker(given["embedding"]), "out_t_span": flow_times()}
    arguments = (given["token"], given["prompt_token"], given["prompt_feat"], given["embedding"])
    for key in golden.outputs(name):
        if key.startswith(("out_offline", "out_streaming")):
            got[key] = flow.synthesize(*arguments, streaming="streaming" in key, final="final" in key)
    assert len(got) == len(golden.outputs(name))
    assert golden.check(name, got) == []


def test_start_noise_is_the_reference_noise(golden):
    noise = start_noise().T.double()
    got = {
        "out_head": noise[:, :320],
        "out_tail": noise[:, -8:],
        "out_row_mean": noise.mean(1),
        "out_row_std": noise.std(1),
    }
    assert golden.check("04_rand_noise", got) == []


def test_start_noise_leaves_the_global_generators_alone():
    start_noise.cache_clear()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    start_noise()
    assert torch.equal(torch.rand(3), expected)


def test_ids_below_zero_count_as_zero(flows):
    flow = flows("mini")
    assert torch.equal(flow.embed_tokens(torch.tensor([-1, 4])), flow.embed_tokens(torch.tensor([0, 4])))


def test_quick_mish_is_mish_from_end_to_end_of_float32():
    x = torch.cat([torch.linspace(-100, 100, 20001), torch.tensor([-1e30, -0.0, 1e-30, 88.8, 1e30])])
    with torch.inference_mode():
        quick = mish(x)
    assert_close(quick, F.mish(x), atol=2e-6, rtol=2e-6)
