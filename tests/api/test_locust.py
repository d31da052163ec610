"""The load from outside: locust as people start it, in a process of its own, against the scripted studio."""

from __future__ import annotations

import json
import subprocess
import sys

from studio.backends.fake import Raise
from studio.errors import SpeechLMError
from tests.api.conftest import Service
from tests.real_studio import ROOT


def locust(service: Service, *flags: str) -> subprocess.CompletedProcess[str]:
    """It finds its file by pyproject.toml."""
    command = [sys.executable, "-m", "locust", "--headless", "--only-summary", "--host", service.url, *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


def figures_of(ended: subprocess.CompletedProcess[str]) -> dict[str, float]:
    return json.loads(next(line for line in ended.stdout.splitlines() if line.startswith("{")))


def test_locust_gives_the_figures_of_the_bench(service: Service) -> None:
    ended = locust(service, "--users", "2", "--spawn-rate", "2", "--text-s", "3", "--plays", "6")
    assert ended.returncode == 0, ended.stderr
    figures = figures_of(ended)
    assert figures["plays"] >= 6 and figures["failures"] == 0 and figures["streams"] in (1, 2)
    assert 0 < figures["ttfa_p50_ms"] <= figures["ttfa_p95_ms"] <= figures["ttfa_p99_ms"]
    assert figures["audio_s_per_s"] > 0 and 0 <= figures["continuity"] <= 1
    assert "/v1/audio/speech" in ended.stderr  # its own report


def test_locust_counts_what_fails(service: Service) -> None:
    service.lm.enqueue(Raise(SpeechLMError("speech.lm_failed", reason="no such luck")))
    ended = locust(service, "--users", "1", "--text-s", "3", "--plays", "2")
    assert ended.returncode == 1, ended.stderr
    figures = figures_of(ended)
    assert figures["plays"] >= 2 and figures["failures"] == 1
    assert "no such luck" in ended.stderr
