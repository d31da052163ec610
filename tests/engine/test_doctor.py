"""`python -m studio.doctor` as a person runs it: it starts the studio on the real engine and hears one sentence."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.official_layout import write_official
from tests.real_studio import ROOT


@pytest.mark.timeout(900)
def test_doctor_speaks_one_sentence_with_a_checkpoint_in_the_official_layout(tmp_path: Path) -> None:
    folder = write_official(tmp_path / "official")
    flags = ("--model-dir", folder, "--data-dir", tmp_path / "data", "--kv-cache-gib", "0.1", "--max-model-len", "2048")
    command = [sys.executable, "-m", "studio.doctor", *map(str, flags)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert told.returncode == 0, told.stdout + told.stderr
    assert re.search(r"^ok +start +answers after \d+ s, engine after \d+ s$", told.stdout, re.M)
    assert re.search(r"^ok +speech +\d+\.\d s of sound in \d+\.\d s, level -\d+ dB$", told.stdout, re.M)
    assert told.stdout.endswith("nothing hinders\n")
    assert len(list((tmp_path / "data" / "cache").glob("speech-lm-*"))) == 1
