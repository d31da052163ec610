"""The vocoder from a checkpoint in every spelling, from mel alone, and while it is trained."""

import pytest
import torch

from studio.models.hift import Hift, HiftConfig
from studio.models.weights import WeightsError
from tests.parity.conftest import GOLDEN, synthetic_weights


def synthetic_state(size: str) -> dict[str, torch.Tensor]:
    return dict(synthetic_weights(size, "hift"))


@pytest.mark.parametrize("size", ["mini", pytest.param("full", marks=pytest.mark.full)])
@torch.no_grad()
def test_whole_vocoder_from_mel_alone_is_the_fixture_but_for_the_phase(size):
    name = f"05_hift_{size}"
    given, expected = GOLDEN.inputs(name), torch.from_numpy(GOLDEN.arrays(name, "out_")["out_speech"])
    got = Hift.from_state(synthetic_state(size))(given["mel"][None], noise=given["noise"][None])[0]
    error = (got - expected).square().mean().sqrt() / expected.square().mean().sqrt()
    assert error < 5e-3


def old_spelling(state: dict) -> dict:
    renamed = {}
    for name, value in state.items():
        name = name.replace("parametrizations.weight.original0", "weight_g")
        renamed["generator." + name.replace("parametrizations.weight.original1", "weight_v")] = value
    return renamed


def folded(state: dict) -> dict:
    return Hift.from_state(state).fold_weight_norm().state_dict()


@pytest.mark.parametrize("spelling", [old_spelling, folded])
@torch.no_grad()
def test_other_spellings_of_a_checkpoint_give_the_same_speech(spelling):
    state = synthetic_state("mini")
    mel = GOLDEN.inputs("05_hift_mini")["mel"][None]
    model, other = Hift.from_state(state), Hift.from_state(spelling(state))
    assert other.config == model.config
    f0 = model.predict_f0(mel)
    torch.testing.assert_close(other(mel, f0), model(mel, f0), atol=2e-5, rtol=0)
    torch.testing.assert_close(model.fold_weight_norm()(mel, f0), other(mel, f0), atol=2e-5, rtol=0)


def test_sizes_are_read_from_the_tensors():
    assert Hift.from_state(synthetic_state("full")).config == HiftConfig()


def test_a_missing_or_foreign_tensor_is_refused():
    state = synthetic_state("mini")
    with pytest.raises(WeightsError, match=r"conv_post\.bias is missing"):
        Hift.from_state({k: v for k, v in state.items() if k != "conv_post.bias"})
    with pytest.raises(WeightsError, match="not a HiFT vocoder"):
        Hift.from_state({"stranger": torch.zeros(1)})
    with pytest.raises(WeightsError, match="stranger"):
        Hift.from_state(state | {"stranger": torch.zeros(1)})


def test_training_reaches_every_weight_and_draws_fresh_noise():
    model = Hift.from_state(synthetic_state("mini")).train()
    mel, f0 = torch.randn(2, 80, 12), torch.full((2, 12), 150.0)
    f0[:, 6:] = 0
    first, second = model(mel, f0), model(mel, f0)
    assert first.shape == (2, 12 * 480) and not torch.equal(first, second)
    (first.square().mean() + model.f0_loss(mel, f0)).backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert silent == []
