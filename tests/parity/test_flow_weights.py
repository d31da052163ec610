"""Flow checkpoints: both file kinds, half precision, and errors that name the first key which does not fit."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from studio.errors import CheckpointError
from studio.models.flow import Flow, FlowConfig
from studio.models.weights import WeightsError, read_tensors


@pytest.fixture
def tensors(weights):
    return dict(weights("mini", "flow"))


def test_sizes_are_read_off_the_tensors(tensors):
    assert FlowConfig.from_tensors(tensors, estimator_head_dim=32) == FlowConfig(
        speech_tokens=243,
        encoder_dim=64,
        encoder_heads=4,
        encoder_feed_forward=128,
        encoder_blocks=2,
        upsampled_blocks=2,
        estimator_channels=64,
        estimator_heads=4,
        estimator_head_dim=32,
        estimator_mid_blocks=2,
        estimator_transformers=2,
        estimator_feed_forward=256,
    )


@pytest.mark.parametrize("size", [pytest.param("full", marks=pytest.mark.full)])
def test_default_sizes_are_the_official_ones(weights, size):
    assert FlowConfig.from_tensors(weights(size, "flow")) == FlowConfig()


@pytest.mark.parametrize("name", ["flow.pt", "flow.safetensors"])
def test_half_precision_file_of_either_kind_loads_as_float32(tensors, tmp_path, name):
    half = {key: tensor.half() for key, tensor in tensors.items()}
    torch.save(half, tmp_path / name) if name.endswith(".pt") else save_file(half, tmp_path / name)
    state = Flow.from_file(tmp_path / name, estimator_head_dim=32).state_dict()
    assert state.keys() == tensors.keys()
    for key, tensor in state.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, half[key].float())


def test_state_saved_by_the_flow_loads_again(tensors, tmp_path):
    torch.save(Flow.from_tensors(tensors, 32).state_dict(), tmp_path / "flow.pt")
    again = Flow.from_file(tmp_path / "flow.pt", estimator_head_dim=32).state_dict()
    assert all(torch.equal(again[key], tensor) for key, tensor in tensors.items())


def test_state_of_a_flow_in_training_is_fit_for_safetensors(tensors, tmp_path):
    flow = Flow(FlowConfig.from_tensors(tensors, 32))
    save_file(flow.state_dict(), tmp_path / "flow.safetensors")
    again = Flow.from_file(tmp_path / "flow.safetensors", estimator_head_dim=32).state_dict()
    assert all(torch.equal(again[key], tensor) for key, tensor in flow.state_dict().items())


def test_missing_unknown_and_misshapen_tensors_are_named(tensors):
    first = "decoder.estimator.final_proj.bias"
    with pytest.raises(WeightsError, match=rf"flow: {first} is missing, shape \[80\] expected"):
        Flow.from_tensors({key: tensor for key, tensor in tensors.items() if key != first}, 32)
    with pytest.raises(WeightsError, match=r"flow: encoder.extra \[2\] is not known"):
        Flow.from_tensors(tensors | {"encoder.extra": torch.zeros(2), "later.extra": torch.zeros(2)}, 32)
    with pytest.raises(WeightsError, match=rf"{first} has shape \[81\], \[80\] expected"):
        Flow.from_tensors(tensors | {first: torch.zeros(81)}, 32)
    with pytest.raises(WeightsError, match=r"input_embedding.weight is missing, so this is no flow"):
        Flow.from_tensors({key: tensor for key, tensor in tensors.items() if "embedding" not in key}, 32)
    with pytest.raises(WeightsError, match="width 128 is no multiple of the head width 48"):
        Flow.from_tensors(tensors, 48)


def test_files_that_are_no_checkpoint_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"absent\.pt is missing"):
        read_tensors(tmp_path / "absent.pt")
    (tmp_path / "broken.pt").write_bytes(b"not a checkpoint")
    (tmp_path / "broken.safetensors").write_bytes(b"not a checkpoint")
    for name in ("broken.pt", "broken.safetensors"):
        with pytest.raises(CheckpointError, match=rf"{name} in .* is cut short or damaged"):
            read_tensors(tmp_path / name)
    for stored in ([1, 2], {"step": 3}, {3: torch.zeros(1)}):
        torch.save(stored, tmp_path / "other.pt")
        with pytest.raises(CheckpointError, match="no table of named tensors"):
            read_tensors(tmp_path / "other.pt")


def test_weights_changed_after_a_first_use_are_used(tensors):
    flow = Flow.from_tensors(tensors, 32)
    tokens = torch.arange(30)

    def encode() -> torch.Tensor:
        with torch.no_grad():
            return flow.encoder(flow.embed_tokens(tokens)[None])

    before = encode()
    with torch.no_grad():
        for block in flow.encoder.encoders:
            for linear in (block.self_attn.linear_q, block.self_attn.linear_k, block.self_attn.linear_v):
                linear.weight.mul_(2)
    cached = encode()
    flow.encoder.load_state_dict(flow.encoder.state_dict())
    assert (cached - before).abs().max() > 1e-3
    torch.testing.assert_close(encode(), cached)
