"""The vocoder's trainer on the CPU, and the frame that every trainer shares."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from studio.models.hift.generator import Hift
from studio.training import vocoder
from studio.training.corpus import decode_part
from studio.training.stepping import Optimizer, Schedule, load_weights

CORPUS = Path(__file__).resolve().parents[1] / "fixtures" / "tiny_corpus"


def test_vocoder_trains_in_both_phases_and_its_file_loads_as_a_checkpoint(tmp_path: Path) -> None:
    cache, out = tmp_path / "cache", tmp_path / "out"
    decode_part(CORPUS, cache, "tiny", workers=1, limit=8)
    places = [str(cache), str(CORPUS / "speakers.json"), str(out)]
    small = [
        "--device",
        "cpu",
        "--base",
        "32",
        "--f0-channels",
        "32",
        "--period-width",
        "2",
        "--spectrum-width",
        "2",
        "--rows",
        "2",
        "--crop-tokens",
        "8",
        "--capacity-tokens",
        "900",
        "--capacity-clips",
        "20",
    ]
    vocoder.train(
        vocoder.parse([*places, *small, "--minutes", "1000", "--max-steps", "2", "--judges-from", "2"])
    )
    vocoder.train(
        vocoder.parse(
            [
                *places,
                *small,
                "--minutes",
                "1000",  # counted from this process's start, in which other tests may have run for long
                "--max-steps",
                "2",
                "--judges-from",
                "0",
                "--resume",
                str(out / "hift.pt"),
                "--name",
                "hift_polished",
            ]
        )
    )
    lines = [json.loads(line) for line in (out / "hift_polished.jsonl").read_text().splitlines()]
    assert lines[-1]["done"] and lines[-1]["judged_steps"] == 2
    assert all(np.isfinite(value) for value in lines[-1].values())
    weights, meta = load_weights(out / "hift_polished.pt")
    assert meta["base"] == 32
    assert Hift.from_state(weights).config.base_channels == 32


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    layer = torch.nn.Linear(3, 2)
    optimizer = Optimizer(layer, 1e-2)
    optimizer.step(layer(torch.ones(1, 3)).square().mean())
    before = layer.weight.detach().clone()
    optimizer.step(layer(torch.ones(1, 3)).square().mean() * float("nan"))
    assert torch.equal(layer.weight, before)
    optimizer.step(layer(torch.ones(1, 3)).square().mean())
    assert not torch.equal(layer.weight, before)


def test_learning_rate_warms_up_then_falls_to_its_end_with_the_wall_clock(monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr("studio.training.stepping.time.monotonic", lambda: now[0])
    schedule = Schedule(began_s=100.0, budget_s=60.0, peak=1.0, max_steps=10**9, warmup_s=6.0, final_ratio=0.1)
    rates = []
    for second in range(61):
        now[0] = 100.0 + second
        rates.append(schedule.rate(0))
    assert rates[:7] == sorted(rates[:7]) and max(rates) == rates[6]
    assert rates[6:] == sorted(rates[6:], reverse=True)
    assert abs(rates[60] - 0.1) < 1e-6 and schedule.over(0)


def test_learning_rate_falls_with_the_steps_on_a_machine_of_any_speed(monkeypatch) -> None:
    monkeypatch.setattr("studio.training.stepping.time.monotonic", lambda: 100.0)
    schedule = Schedule(began_s=100.0, budget_s=60.0, peak=1.0, max_steps=20, warmup_s=6.0, final_ratio=0.1)
    rates = [schedule.rate(step) for step in range(21)]
    assert rates[2] == max(rates) == 1.0
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert abs(rates[20] - 0.1) < 1e-6 and schedule.over(20) and not schedule.over(19)
