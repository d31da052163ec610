"""The Makefile's own rules, run in an empty folder."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def make(folder: Path, *words: str) -> str:
    command = ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def test_weights_go_aside_and_come_back(tmp_path: Path) -> None:
    weights = tmp_path / "assets" / "voice" / "llm.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"weights")
    make(tmp_path, "weights-aside")
    assert not weights.exists()
    assert (tmp_path / ".carry" / "voice" / "llm.safetensors").read_bytes() == b"weights"
    make(tmp_path, "weights-aside")  # nothing left to move: no harm
    make(tmp_path, "weights-back")
    assert weights.read_bytes() == b"weights"


def test_weights_aside_are_out_of_git() -> None:
    assert "/.carry/" in (ROOT / ".gitignore").read_text().splitlines()


def test_clean_leaves_weights_and_voices(tmp_path: Path) -> None:
    for kept in ("assets/voice/llm.safetensors", "data/library/voices.db"):
        (tmp_path / kept).parent.mkdir(parents=True)
        (tmp_path / kept).touch()
    for gone in (".venv/bin/python", "studio/__pycache__/a.pyc"):
        (tmp_path / gone).parent.mkdir(parents=True)
        (tmp_path / gone).touch()
    make(tmp_path, "clean")
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["assets/voice/llm.safetensors", "data/library/voices.db"]


def test_help_lists_every_target(tmp_path: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    listed = [line.split()[0] for line in make(tmp_path, "help").splitlines()]
    assert listed == targets


def test_continuous_integration_runs_the_tests_of_the_makefile() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert script.read_text().splitlines()[-1] == "exec make --no-print-directory test"
