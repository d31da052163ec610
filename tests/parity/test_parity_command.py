"""`python -m studio.parity` on other folders: weights in the official layout, numbers that differ, things missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from studio.parity.__main__ import main
from studio.parity.compare import Tolerance, near
from studio.parity.fixtures import Fixtures
from tests.parity.conftest import FIXTURES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The mini fixtures without weights and without a recipe."""
    for file in FIXTURES.glob("0?_*mini.*"):
        shutil.copy(file, tmp_path)
    shutil.copy(FIXTURES / "sizes.json", tmp_path)
    return tmp_path


def old_spelling(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The other form of an official hift.pt: a prefix, and weight norm as g and v."""
    named = {}
    for name, tensor in tensors.items():
        name = name.replace("parametrizations.weight.original0", "weight_g")
        named["generator." + name.replace("parametrizations.weight.original1", "weight_v")] = tensor
    return named


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[list[str]]]:
    """Exit status and the words of each line but the last."""
    status = main([str(a) for a in arguments])
    return status, [line.split() for line in capsys.readouterr().out.splitlines()[:-1]]


def test_weights_in_the_official_layout_are_taken_with_a_sizes_json(folder, weights, capsys):
    for part in ("flow", "llm"):
        torch.save(weights("mini", part), folder / f"{part}.pt")
    torch.save(old_spelling(weights("mini", "hift")), folder / "hift.pt")
    for pattern in ("02_*", "05_*", "06_llm_mini"):  # encoder, vocoder and LM read one file each
        status, lines = run(capsys, folder, "--only", pattern)
        assert status == 0 and lines and {words[0] for words in lines} == {"pass"}


def test_a_number_out_of_tolerance_is_named_and_fails(folder, weights, capsys):
    torch.save(weights("mini", "hift"), folder / "hift.pt")
    arrays = dict(np.load(folder / "05_source_mini.npz"))
    arrays["out_sines"][7, 0] += 0.01
    np.savez(folder / "05_source_mini.npz", **arrays)
    status, lines = run(capsys, folder, "--only", "05_source_mini")
    assert status == 1
    assert [words[1:3] for words in lines if words[0] == "FAIL"] == [["05_source_mini", "out_sines"]]
    assert run(capsys, folder, "--only", "05_source_mini", "--slack", "11")[0] == 0


def test_weights_that_do_not_fit_fail_and_name_the_key(folder, weights, capsys):
    torch.save({k: v for k, v in weights("mini", "flow").items() if k != "encoder_proj.bias"}, folder / "flow.pt")
    status, lines = run(capsys, folder, "--only", "02_*")
    assert status == 1 and "encoder_proj.bias" in " ".join(lines[0])


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda f: None, "weights: neither keys/mini_flow.json"),
        (lambda f: (f / "05_source_mini.npz").unlink(), "05_source_mini.npz is missing"),
        (lambda f: (f / "02_encoder_mini.json").unlink(), "02_encoder_mini.json is missing"),
        (lambda f: (f / "02_encoder_mini.npz").rename(f / "02_dancing.npz"), "no runner for this kind"),
    ],
)
def test_what_is_missing_is_said_and_gives_2(folder, weights, capsys, fault, words):
    torch.save(weights("mini", "hift"), folder / "hift.pt")
    fault(folder)
    status, lines = run(capsys, folder, "--only", "0[25]_[des]*")
    assert status == 2 and words in " ".join(" ".join(line) for line in lines)


def test_an_array_that_our_code_does_not_give_is_missing(folder, weights, capsys):
    torch.save(weights("mini", "flow"), folder / "flow.pt")
    arrays = dict(np.load(folder / "02_encoder_mini.npz"))
    np.savez(folder / "02_encoder_mini.npz", **arrays, out_dance=np.zeros(3))
    status, lines = run(capsys, folder, "--only", "02_*")
    assert status == 2 and [words[2] for words in lines if words[0] == "missing"] == ["out_dance"]


def test_a_folder_without_fixtures_gives_2(tmp_path, capsys):
    assert run(capsys, tmp_path) == (2, [])


def test_an_output_that_is_no_number_is_no_pass(folder, weights, capsys):
    torch.save(weights("mini", "flow"), folder / "flow.pt")
    arrays = dict(np.load(folder / "02_encoder_mini.npz"))
    arrays["out_full_offline"][0, 0] = np.nan
    np.savez(folder / "02_encoder_mini.npz", **arrays)
    assert run(capsys, folder, "--only", "02_*")[0] == 1


def test_the_recipe_gives_the_values_that_its_check_file_lists():
    """What the golden numbers stand on: the first values and the sum of some tensors of each key list."""
    fixtures, listed = Fixtures(FIXTURES), json.loads((FIXTURES / "weights_check.json").read_text())
    for part in ("mini_flow", "mini_hift", "mini_llm"):
        made = fixtures.weights(*part.split("_"))
        for name, check in listed[part].items():
            values = made[name].double().reshape(-1)
            assert values[:3].tolist() == pytest.approx(check["first"], abs=1e-12)
            assert float(values.sum()) == pytest.approx(check["sum64"], abs=1e-9)


def test_arrays_are_held_by_their_distance_from_the_error_where_that_is_asked_for(capsys):
    """As on a GPU in half precision: 30 dB, where float32 on this CPU has 100 and more."""
    pattern = ("--only", "02_encoder_mini")
    assert run(capsys, FIXTURES, *pattern, "--least-snr-db", 60)[0] == 0
    status, lines = run(capsys, FIXTURES, *pattern, "--least-snr-db", 300)
    assert status == 1
    assert {words[0] for words in lines if "at" in words and "least" in words} == {"FAIL"}


def test_not_a_number_is_far_from_everything():
    for least_snr_db in (None, 30.0):
        line = near("fixture", "array", [1.0, float("nan")], [1.0, 2.0], Tolerance(1e9), least_snr_db)
        assert line.verdict == "FAIL"
