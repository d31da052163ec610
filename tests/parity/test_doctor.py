"""The doctor on a whole checkpoint in the official layout, and on one with each of a dozen faults."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from studio.doctor.__main__ import main
from studio.doctor.checkpoint import CheckpointExam
from studio.doctor.finding import Finding
from studio.doctor.packages import pin_findings
from studio.doctor.speech import judged
from studio.hub.download import MANIFEST
from studio.models.speech_lm.convert import converted_folder
from tests.official_layout import write_official
from tests.stand_in_onnx import write_speaker, write_tokenizer


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return write_official(tmp_path_factory.mktemp("official"))


@pytest.fixture
def folder(whole, tmp_path) -> Path:
    """A copy to spoil."""
    return shutil.copytree(whole, tmp_path / "checkpoint")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change(path: Path, **tensors: torch.Tensor | None) -> None:
    """Write a file of weights again, with other tensors; None leaves one out."""
    stored = torch.load(path, weights_only=True) | {k.replace("__", "."): v for k, v in tensors.items()}
    torch.save({k: v for k, v in stored.items() if v is not None}, path)


def unset(path: Path, name: str) -> None:
    """Write a config again without one of its rows."""
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != name}))


def unreadable(path: Path) -> None:
    """A file that is there and gives an error when it is read, to root too."""
    path.unlink()
    path.symlink_to("/proc/self/mem")


class Code:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("hacked",)


FAULTS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "missing weights": (lambda f: (f / "llm.pt").unlink(), "llm.pt", "is missing in"),
    "weights that may not be read": (lambda f: unreadable(f / "hift.pt"), "hift.pt", "may not be read .* the right"),
    "weights cut short": (lambda f: cut(f / "flow.pt"), "flow and vocoder", "flow.pt in .* is cut short"),
    "code in weights": (lambda f: torch.save({"a": Code()}, f / "hift.pt"), "flow and vocoder", "hift.pt .* code"),
    "code in presets": (lambda f: torch.save({"a": Code()}, f / "spk2info.pt"), "spk2info.pt", "holds code"),
    "pointer of Git LFS": (
        lambda f: (f / "llm.pt").write_text("version https://git-lfs.github.com/spec/v1\n"),
        "llm.pt", "git lfs pull",
    ),
    "another version": (
        lambda f: (f / "cosyvoice2.yaml").rename(f / "cosyvoice.yaml"), "cosyvoice2.yaml", "CosyVoice 1",
    ),
    "description that is no YAML": (
        lambda f: (f / "cosyvoice2.yaml").write_text("a: ["), "cosyvoice2.yaml", "cannot be read",
    ),
    "LM of another shape": (
        lambda f: change(f / "llm.pt", llm_decoder__bias=torch.zeros(7)),
        "speech LM", r"llm.pt .* llm_decoder.bias has shape \[7\], expected \[246\]",
    ),
    "flow without a tensor": (
        lambda f: change(f / "flow.pt", encoder_proj__bias=None),
        "flow and vocoder", "flow.pt .* encoder_proj.bias is missing",
    ),
    "flow without the tensor that shows its size": (
        lambda f: change(f / "flow.pt", input_embedding__weight=None),
        "flow and vocoder", r"^flow.pt in .*input_embedding.weight is missing",
    ),
    "vocoder with one too many": (
        lambda f: change(f / "hift.pt", stranger=torch.zeros(1)), "flow and vocoder", "hift.pt .* stranger",
    ),
    "ONNX that does not load": (
        lambda f: cut(f / "speech_tokenizer_v2.onnx"), "prompt encoders", "speech_tokenizer_v2.onnx: cannot be loaded",
    ),
    "ONNX in another's place": (
        lambda f: write_tokenizer(f / "campplus.onnx"), "prompt encoders", "campplus.onnx: has 2 inputs",
    ),
    "embedding of another width": (
        lambda f: write_speaker(f / "campplus.onnx", width=256), "prompt encoders", "not 192 finite",
    ),
    "config that is no JSON": (
        lambda f: (f / "CosyVoice-BlankEN/config.json").write_text("{"), "CosyVoice-BlankEN", "config.json",
    ),
    "config without a size": (
        lambda f: unset(f / "CosyVoice-BlankEN/config.json", "hidden_size"),
        "CosyVoice-BlankEN", "config.json .*no hidden_size",
    ),
    "no tokenizer": (
        lambda f: shutil.rmtree(f / "CosyVoice-BlankEN"), "CosyVoice-BlankEN/config.json", "is missing in",
    ),
    "tokenizer without merges": (
        lambda f: (f / "CosyVoice-BlankEN/merges.txt").unlink(), "CosyVoice-BlankEN/merges.txt", "is missing",
    ),
    "flow of other speech codes": (
        lambda f: change(f / "flow.pt", input_embedding__weight=torch.zeros(729, 64)),
        "parts together", "speech LM 243, flow 729",
    ),
}  # fmt: skip


def examined(folder: Path) -> list[Finding]:
    return list(CheckpointExam(folder, folder).findings())


def faults_of(folder: Path) -> list[Finding]:
    return [finding for finding in examined(folder) if finding.verdict == "FAULT"]


def test_a_whole_checkpoint_has_no_fault(folder):
    found = examined(folder)
    assert {finding.verdict for finding in found} == {"ok"}
    assert "1 preset voices" in next(f.detail for f in found if f.subject == "spk2info.pt")


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_and_named_once(folder, fault):
    spoil, subject, words = FAULTS[fault]
    spoil(folder)
    faults = faults_of(folder)
    named = [finding for finding in faults if finding.subject == subject]
    assert len(named) == 1 and len({finding.detail for finding in faults}) == len(faults)
    assert re.search(words, named[0].detail, re.DOTALL), named[0].detail
    assert not Path("hacked").exists()


def test_a_file_that_changed_since_it_was_fetched_is_found(folder):
    path = folder / "flow.pt"
    content = path.read_bytes()
    listed = {"path": "flow.pt", "size": len(content), "revision": "main", "sha256": "0" * 64}
    (folder / MANIFEST).write_text(json.dumps({"files": [listed]}))
    (finding,) = faults_of(folder)
    assert finding.subject == "flow.pt" and "the next start fetches it again" in finding.detail


def test_a_disk_without_room_for_the_converted_checkpoint_is_told_and_one_that_holds_it_is_not(
    folder, tmp_path, monkeypatch
):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    (finding,) = faults_of(folder)
    assert finding.subject == "converted" and "--cache-dir" in finding.detail
    converted_folder(folder / "llm.pt", folder / "CosyVoice-BlankEN/config.json", folder).mkdir()
    assert faults_of(folder) == []


def test_a_damaged_listing_is_named_with_the_remedy(folder):
    (folder / MANIFEST).write_text("{")
    (finding,) = faults_of(folder)
    assert finding.subject == MANIFEST and "Delete it" in finding.detail


def test_the_command_ends_with_1_where_something_hinders_and_does_not_speak_then(folder, tmp_path, capsys):
    (folder / "llm.pt").unlink()
    assert main(["--model-dir", str(folder), "--data-dir", str(tmp_path / "data")]) == 1
    told = capsys.readouterr().out
    assert "FAULT  llm.pt" in told and "not tried, since something above hinders it" in told
    assert told.count("llm.pt is missing") == 1


def test_a_checkpoint_that_is_not_fetched_yet_is_no_fault(tmp_path, capsys):
    assert main(["--quick", "--model-dir", "FunAudioLLM/CosyVoice2-0.5B", "--data-dir", str(tmp_path)]) == 0
    assert "`.venv/bin/python -m studio.hub FunAudioLLM/CosyVoice2-0.5B` fetches it" in capsys.readouterr().out


def test_packages_are_held_against_their_pins(tmp_path):
    pins = tmp_path / "pins.txt"
    pins.write_text("# a set\nnumpy==0.0.1  # old\nno-such-package==1.0\nother; python_version < '3'\n")
    missing, other = pin_findings(pins)
    assert missing.verdict == "FAULT" and "no-such-package" in missing.detail and "numpy" not in missing.detail
    assert other.verdict == "note" and "numpy" in other.detail and "==0.0.1" in other.detail


def test_silence_is_no_speech():
    assert judged(np.zeros(48_000, np.int16), 1.0).verdict == "FAULT"
    assert judged(np.zeros(0, np.int16), 1.0).verdict == "FAULT"
    assert judged((np.random.default_rng(0).standard_normal(48_000) * 3000).astype(np.int16), 1.0).verdict == "ok"
