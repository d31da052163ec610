"""How the worker programs are started: threads by device, and what stands in their environment."""

from __future__ import annotations

import subprocess
import sys

from studio.engine.worker_command import ALONE, worker_command, worker_variables
from studio.threads import thread_count


def test_cores_are_divided_on_a_cpu_and_left_alone_beside_a_gpu():
    assert [thread_count(part, {}, "cpu", 8) for part in ("lm", "token2wav")] == [4, 4]
    assert [thread_count(part, {}, "cpu", 1) for part in ("lm", "token2wav")] == [1, 1]
    assert [thread_count(part, {"lm_threads": 6}, "cpu", 8) for part in ("lm", "token2wav")] == [6, 2]
    assert [thread_count(part, {}, "cuda", 64) for part in ("lm", "token2wav")] == [1, 2]
    assert thread_count("token2wav", {"token2wav_threads": 5}, "cuda", 64) == 5


def test_a_worker_on_a_cpu_is_started_as_it_is():
    variables = worker_variables("lm", {}, "cpu", {"lm": {"A": "1"}})
    assert variables == {} and worker_command("ears", variables) == [sys.executable, "-m", "studio.backends.ears"]


def test_a_worker_beside_a_gpu_finds_its_own_variables_as_it_begins():
    shared = {"token2wav": {"CUDA_MPS_CLIENT_PRIORITY": "1"}}
    variables = worker_variables("token2wav", {"token2wav_threads": 3}, "cuda", shared)
    *before, _, module = worker_command("torch_token2wav", variables)
    assert module == "studio.backends.torch_token2wav"
    shown = subprocess.run(
        [*before, "-c", "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['CUDA_MPS_CLIENT_PRIORITY'])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout.split() == ["3", "1"]
    assert "CUDA_MPS_CLIENT_PRIORITY" not in worker_variables("lm", {}, "cuda", shared)
    assert worker_variables("lm", {}, "cuda", ALONE)["OMP_NUM_THREADS"] == "1"
