"""The web process stays light: the page is up within seconds because nothing heavy is imported in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "torchaudio", "vllm", "transformers", "onnxruntime"}


def test_importing_the_application_loads_no_torch() -> None:
    """Catches what a library of ours brings along; the unit test of imports sees only what we name."""
    code = f"import sys, app; print(*sorted(set(sys.modules) & {HEAVY!r}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, ""), run.stderr
