"""The vocoder against numbers of the public code (fixtures 05), and its checkpoint in every spelling."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest
import torch

from studio.models.hift import Hift, HiftConfig

FIXTURES = Path(__file__).parents[1] / "fixtures"
sys.path.insert(0, str(FIXTURES))
from compare import check, inputs, outputs  # noqa: E402
from make_weights import fill  # noqa: E402

from studio.models.weights import WeightsError  # noqa: E402


def synthetic_state(size: str) -> dict[str, torch.Tensor]:
    shapes = json.loads((FIXTURES / "keys" / f"{size}_hift.json").read_text())
    return {name: torch.from_numpy(value) for name, value in fill(shapes).items()}


@pytest.fixture(scope="module", params=["mini", "full"])
def case(request: pytest.FixtureRequest) -> tuple[str, Hift, dict, dict]:
    torch.manual_seed(0)
    name = f"05_hift_{request.param}"
    arrays = {k: torch.from_numpy(v).float()[None] for k, v in (inputs(name) | outputs(name)).items()}
    return name, Hift.from_state(synthetic_state(request.param)), arrays, outputs(name)


@torch.no_grad()
def test_f0_equals_the_fixture(case):
    name, model, arrays, _ = case
    assert check(name, {"out_f0": model.predict_f0(arrays["in_mel"])[0]}) == []


@torch.no_grad()
def test_source_of_the_fixtures_f0_equals_the_fixture(case):
    name, model, arrays, expected = case
    noise = arrays["in_noise"]
    got = {"out_source": model.m_source(arrays["out_f0"], noise)[0],
           "out_source_nonoise": model.m_source(arrays["out_f0"], torch.zeros_like(noise))[0]}
    assert check(name, {k: v for k, v in got.items() if k in expected}) == []


@torch.no_grad()
def test_decoder_on_the_fixtures_source_equals_the_fixture(case):
    name, model, arrays, expected = case
    sources = {"out_speech": arrays["out_source"], "out_speech_nonoise": arrays["out_source_nonoise"]}
    if "out_speech_cached" in expected:
        cached, own = arrays["in_cache_source"], arrays["out_source_nonoise"]
        sources["out_speech_cached"] = torch.cat([cached, own[:, cached.shape[1]:]], 1)
    got = {key: model.decode(arrays["in_mel"], source)[0]
           for key, source in sources.items() if key in expected}
    assert got and check(name, got) == []


@torch.no_grad()
def test_whole_vocoder_from_the_fixtures_f0_equals_the_fixture(case):
    # From mel alone the synthetic weights turn an f0 error of 3e-4 Hz (the order of a sum, within
    # the fixture's own 0.01) into 5e-3 of speech, so f0 has its own test and the rest starts from the
    # fixture's. The same holds for the phase: 1e-3 needs the sum in float32, in upstream's order.
    name, model, arrays, _ = case
    upstream = Hift(dataclasses.replace(model.config, float32_phase=True)).eval()
    upstream.load_state_dict(model.state_dict())
    got = upstream(arrays["in_mel"], arrays["out_f0"], arrays["in_noise"])[0]
    assert check(name, {"out_speech": got}) == []


@torch.no_grad()
def test_whole_vocoder_from_mel_alone_is_the_fixture_but_for_the_phase(case):
    _, model, arrays, _ = case
    got = model(arrays["in_mel"], noise=arrays["in_noise"])
    error = (got - arrays["out_speech"]).square().mean().sqrt() / arrays["out_speech"].square().mean().sqrt()
    assert error < 5e-3


@torch.no_grad()
def test_source_alone_equals_the_fixture():
    arrays = {k: torch.from_numpy(v).float()[None] for k, v in inputs("05_source_mini").items()}
    source = Hift.from_state(synthetic_state("mini")).m_source
    f0, noise = arrays["in_f0"], arrays["in_noise"]
    voicing = source.voicing(f0)
    level = (voicing * 0.003 + (1 - voicing) * 0.1 / 3)[..., None]
    sines = source.sines(f0) * voicing[..., None]
    assert check("05_source_mini", {
        "out_sines": sines[0], "out_uv": voicing[0], "out_sines_noise": (sines + level * noise)[0],
        "out_source": source(f0, torch.zeros_like(noise)).detach()[0],
        "out_source_noise": source(f0, noise).detach()[0]}) == []


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
    mel = torch.from_numpy(inputs("05_hift_mini")["in_mel"])[None]
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
