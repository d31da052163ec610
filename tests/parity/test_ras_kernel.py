"""The law and the draw as one Triton kernel against the same in torch, which stands for it elsewhere.

The kernel also runs here with Triton installed and TRITON_INTERPRET=1.
"""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from studio.models.speech_lm.draw import begun
from studio.models.speech_lm.ras import RasRows, final_log_probs
from studio.models.speech_lm.ras_batch import RasParams, record_of
from studio.models.speech_lm.ras_draw import IN_TORCH, RECORD, WORDS, Draw, Layout, best_draw
from studio.models.speech_lm.ras_trial import ASKED, disagreements, draws

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # test code: the studio's settings do not know it
needs_kernel = pytest.mark.skipif(
    not (find_spec("triton") and (ON_GPU or INTERPRETED)), reason="Triton, and a GPU or its interpreter"
)
GOLDEN = json.loads((Path(__file__).parents[1] / "fixtures" / "06_ras.json").read_text())
CASES = {case["name"]: case for case in GOLDEN["cases"]}


def the_kernel() -> Draw:
    from studio.models.speech_lm.ras_triton import step_in_one_kernel

    return Draw(step_in_one_kernel, DEVICE)


def tokens(draw: Draw, logp: list[float], spoken: list[int], seeds: int) -> np.ndarray:
    """What so many seeds draw in one step. int64 [seeds]."""
    records = np.repeat(record_of(RasParams(), spoken), seeds)
    records["seed"] = begun(np.arange(seeds, dtype=np.uint64))
    on_device = torch.from_numpy(records.view(np.int64).reshape(seeds, WORDS)).to(draw.kept_on)
    layout = Layout(torch.arange(seeds, device=draw.kept_on), 25, 10, all_ask=True)
    scores = torch.tensor([logp]).repeat(seeds, 1).to(draw.kept_on)
    left = draw.step(scores, on_device, layout)
    assert bool(((left > float("-inf")).sum(1) == 1).all())
    return left.argmax(1).cpu().numpy()


@needs_kernel
@pytest.mark.parametrize("width", [29, 300, 6564])
def test_kernel_draws_what_torch_draws(width):
    """Rows of every kind, with equal scores at the end of the top_k, masks, windows and parameters of all sorts."""
    rows, steps = (len(ASKED) * 16, 20) if ON_GPU else (len(ASKED), 7 if width < 6564 else 2)
    differing, drawn = disagreements(the_kernel(), width, rows, steps)
    # Rounding on a GPU may move a draw at the border of two tokens; the interpreter rounds as torch does.
    assert differing <= (drawn / 500 if ON_GPU else 0)


@needs_kernel
@pytest.mark.parametrize("name", CASES)
def test_kernel_takes_the_golden_branches(name):
    case, seeds = CASES[name], 2000 if ON_GPU else 60
    given, wanted = (
        tokens(draw, case["logp"], case["decoded"], seeds) for draw in (the_kernel(), IN_TORCH)
    )
    assert (given != wanted).sum() <= (seeds / 500 if ON_GPU else 0)


@needs_kernel
def test_draws_of_the_kernel_follow_the_law():
    """Chi-square at z = 3.7, of 100,000 draws on a GPU; seeds are fixed."""
    case, count = CASES["random246_repeat"], 100_000 if ON_GPU else 300
    ones = torch.ones(1, 1)
    window = torch.tensor([(case["decoded"][-10:] + [-1] * 10)[:10]])
    rows = RasRows(ones, ones * 0.8, ones.long() * 25, ones.long(), 25)
    law = final_log_probs(torch.tensor([case["logp"]]), window, rows).exp()[0].double().numpy()
    counts = np.bincount(tokens(the_kernel(), case["logp"], case["decoded"], count), minlength=len(law))
    assert counts[law == 0].sum() == 0
    big = law * count >= 5
    observed = np.append(counts[big], counts[~big].sum())
    expected = np.append(law[big], law[~big].sum()) * count
    freedom = big.sum()
    limit = freedom * (1 - 2 / (9 * freedom) + 3.7 * (2 / (9 * freedom)) ** 0.5) ** 3
    assert ((observed - expected) ** 2 / expected).sum() < limit


@needs_kernel
def test_scores_that_are_no_numbers_give_some_token():
    for bad in (float("nan"), float("-inf")):
        assert 0 <= tokens(the_kernel(), [bad] * 40, [3], 1)[0] < 40


def test_a_way_that_draws_something_else_is_told_apart():
    """The trial that a start makes of the kernel, with steps that are wrong on purpose."""

    def off_by_one(logits, records, layout):
        return IN_TORCH.step(logits, records, layout).roll(1, dims=1)

    def forgetful(logits, records, layout):
        left = IN_TORCH.step(logits, records, layout)
        records.numpy().view(RECORD)["known"] -= 1
        return left

    assert disagreements(IN_TORCH, 60) == (0, 128)
    differing, drawn = disagreements(Draw(off_by_one, IN_TORCH.kept_on), 60)
    assert differing > drawn / 2
    with pytest.raises(ValueError, match="something else kept"):
        list(draws(Draw(forgetful, IN_TORCH.kept_on), 8, 60, 1))


def test_without_a_kernel_that_runs_torch_draws_and_the_log_says_so(monkeypatch, caplog):
    """As where Triton is missing, fails to build, or builds something wrong."""
    assert best_draw(torch.device("cpu"), 60) is IN_TORCH and not caplog.records
    monkeypatch.setattr("studio.models.speech_lm.ras_draw._kernel", lambda device: 1 / 0)
    assert best_draw(torch.device("cuda"), 60) is IN_TORCH
    assert "without its kernel" in caplog.text and "ZeroDivisionError" in caplog.text
    caplog.clear()

    def untouched(logits, records, layout):
        return logits

    monkeypatch.setattr(
        "studio.models.speech_lm.ras_draw._kernel", lambda device: Draw(untouched, IN_TORCH.kept_on)
    )
    assert best_draw(torch.device("cuda"), 60) is IN_TORCH
    assert "draws differ" in caplog.text
