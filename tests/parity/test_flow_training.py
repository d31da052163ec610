"""The flow's training loss: padding does not count, conditions are dropped, gradients reach every tensor."""

from __future__ import annotations

import pytest
import torch

from studio.models.flow import Flow, training


@pytest.fixture
def flow(weights):
    return Flow.from_tensors(weights("mini", "flow"), estimator_head_dim=32)


def _batch(lengths: list[int]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    longest, rows = max(lengths), len(lengths)
    return {
        "tokens": torch.randint(0, 243, (rows, longest), generator=generator),
        "token_len": torch.tensor(lengths),
        "mel": torch.randn(rows, 2 * longest, 80, generator=generator),
        "mel_len": 2 * torch.tensor(lengths),
        "embedding": torch.randn(rows, 192, generator=generator),
    }


def _fixed(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    rows = len(batch["tokens"])
    return {
        "noise": torch.randn(batch["mel"].shape, generator=torch.Generator().manual_seed(4)),
        "time": torch.linspace(0.1, 0.9, rows),
        "keep": torch.ones(rows),
        "prompt_frames": torch.arange(rows) * 7,
    }


@pytest.mark.parametrize("streaming", [False, True])
def test_loss_of_a_padded_batch_is_the_mean_over_lone_rows(flow, streaming):
    lengths = [61, 30]
    batch = _batch(lengths)
    fixed = _fixed(batch)
    together = flow.matching_loss(**batch, **fixed, streaming=streaming)
    alone = 0.0
    for row, tokens in enumerate(lengths):
        lone = {name: part[row : row + 1] for name, part in (batch | fixed).items()}
        for name, length in (("tokens", tokens), ("mel", 2 * tokens), ("noise", 2 * tokens)):
            lone[name] = lone[name][:, :length]
        alone += flow.matching_loss(**lone, streaming=streaming) * tokens / sum(lengths)
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_every_parameter_gets_a_gradient_and_a_step_lowers_the_loss(flow):
    flow.train()
    batch = _batch([40, 33])
    optimizer = torch.optim.Adam(flow.parameters(), 1e-3)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = flow.training_loss(**batch, generator=torch.Generator().manual_seed(9), streaming=True)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    assert [name for name, part in flow.named_parameters() if part.grad is None] == []
    assert losses[-1] < 0.9 * losses[0]


def test_loss_under_bfloat16_autocast_is_close_to_float32(flow):
    batch = _batch([40, 33])
    fixed = _fixed(batch)
    plain = flow.matching_loss(**batch, **fixed, streaming=True)
    with torch.autocast("cpu", torch.bfloat16):
        half = flow.matching_loss(**batch, **fixed, streaming=True)
    assert half.dtype == torch.float32
    assert abs(half - plain) < 0.03 * plain


def test_generator_fixes_the_loss(flow):
    batch = _batch([20])
    first, second, other = (
        flow.training_loss(**batch, generator=torch.Generator().manual_seed(seed), streaming=False).item()
        for seed in (1, 1, 2)
    )
    assert first == second != other


def test_draw_drops_a_fifth_of_the_conditions_and_prompts_half_of_the_items():
    rows = 4000
    mel_len = torch.full((rows,), 100)
    drawn = training.draw(torch.empty(rows, 1, 1), mel_len, torch.Generator().manual_seed(0))
    # four standard deviations at 4000 draws are 0.025 and 0.032
    assert abs(drawn.keep.mean() - 0.8) < 0.025
    # a prompted item has no frame with probability 1/30
    assert abs((drawn.prompt_frames > 0).float().mean() - 0.5 * 29 / 30) < 0.032
    assert drawn.prompt_frames.max() <= 30
    assert drawn.time.min() >= 0 and drawn.time.max() < 1
    assert abs((drawn.time < 1 - 2**-0.5).float().mean() - 0.5) < 0.032  # the median of the cosine law


def test_noisy_mel_runs_straight_from_noise_to_mel():
    mel, noise = torch.randn(2, 4, 80), torch.randn(2, 4, 80)
    drawn = training.Draw(noise, torch.tensor([0.0, 1.0]), torch.ones(2), torch.zeros(2, dtype=torch.long))
    x, velocity = training.noisy_mel(mel, drawn)
    torch.testing.assert_close(x[0], noise[0])
    torch.testing.assert_close(x[1], mel[1], atol=1e-5, rtol=0)
    torch.testing.assert_close(velocity, mel - (1 - training.SIGMA_MIN) * noise)
