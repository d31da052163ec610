"""A small CosyVoice3 checkpoint in the official layout, through `--model_dir` as a user takes it: every mode.

Its weights are random, so it speaks noise; what is held is that each mode runs to its end and gives whole tokens. The
embedded voice, which is in CosyVoice2's layout, is then loaded beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import psutil
import pytest
import torch
from websockets.sync.client import connect

from studio.speech import SAMPLES_PER_TOKEN
from tests.api.conftest import clip_bytes
from tests.cosyvoice3 import write_checkpoint
from tests.engine.real import VOICE_FOLDER
from tests.real_studio import ADMIN_PASSWORD, RealStudio

PRESET = "中文女"
TEXT = "Hello you. This text is written word by word, and spoken as it comes."


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStudio]:
    folder = write_checkpoint(tmp_path_factory.mktemp("cosyvoice3"))
    torch.save({PRESET: {"embedding": torch.ones(1, 192)}}, folder / "spk2info.pt")
    flags = ("--model_dir", str(folder), "--kv_cache_gib", "0.1", "--max_model_len", "8192")
    flags += ("--hop_growth", "1")  # steps of one length, for other sums of float32 round otherwise now and then
    flags += ("--models", f"embedded={VOICE_FOLDER}", "--load_models", "false")
    studio = RealStudio(tmp_path_factory.mktemp("studio"), *flags)
    studio.start()
    try:
        studio.wait_ready()
        yield studio
    finally:
        studio.stop()


def test_every_mode_speaks(official: RealStudio) -> None:
    body = {"input": "Hello [breath] 3 you.", "voice": "Clara", "response_format": "pcm", "seed": 1}
    asked = [
        {"mode": "zero_shot"},
        {"mode": "cross_lingual"},
        {"instructions": "happily"},
        {"voice": PRESET},
        {"voice": PRESET, "instructions": "happily"},
    ]
    for fields in asked:
        reply = httpx.post(f"{official.url}/v1/audio/speech", json={**body, **fields}, timeout=280)
        assert reply.status_code == 200, (fields, reply.text)
        samples = np.frombuffer(reply.content, "<i2")
        assert len(samples) and len(samples) % SAMPLES_PER_TOKEN == 0, fields


@pytest.mark.parametrize("interleaved", [False, True])
def test_text_that_arrives_is_spoken(official: RealStudio, interleaved: bool) -> None:
    address = official.url.replace("http", "ws") + "/v1/audio/speech/stream"
    with connect(address, open_timeout=120, ping_interval=None) as socket:
        config = {"type": "session.config", "voice": "Clara", "seed": 1, "interleaved": interleaved}
        socket.send(json.dumps(config))
        for word in TEXT.split():
            socket.send(json.dumps({"type": "input.text", "text": f"{word} "}))
        socket.send(json.dumps({"type": "input.done"}))
        messages, samples = [], 0
        while not messages or messages[-1]["type"] not in ("session.done", "error"):
            message = socket.recv(280)
            if isinstance(message, bytes):
                samples += len(message) // 2
            else:
                messages.append(json.loads(message))
    assert [m["type"] for m in messages] == ["audio.start", "audio.done", "session.done"], messages
    assert samples


def test_clip_is_converted(official: RealStudio) -> None:
    for voice in ("Clara", PRESET):
        reply = httpx.post(
            f"{official.url}/v1/audio/conversions", data={"voice": voice, "response_format": "pcm"},
            files={"audio_sample": clip_bytes(2.0)}, timeout=280,
        )  # fmt: skip
        assert reply.status_code == 200, reply.text
        assert len(np.frombuffer(reply.content, "<i2")) % SAMPLES_PER_TOKEN == 0


def test_what_is_honoured_is_told(official: RealStudio) -> None:
    (model,) = httpx.get(f"{official.url}/v1/models").json()["data"]
    assert set(model["modes"]) == {"zero_shot", "cross_lingual", "instruct", "preset", "conversion"}
    reply = httpx.post(f"{official.url}/v1/audio/speech", json={"input": "Hi.", "voice": PRESET, "mode": "zero_shot"})
    assert reply.status_code == 400 and "preset" in reply.json()["error"]["message"]


def test_two_models_speak_side_by_side_and_unloading_one_frees_its_processes_alone(official: RealStudio) -> None:
    admin = httpx.Client(base_url=official.url, timeout=280)
    admin.post("/admin/login", json={"password": ADMIN_PASSWORD}).raise_for_status()

    def row() -> dict:
        return next(m for m in admin.get("/admin/models").json()["models"] if m["name"] == "embedded")

    def processes() -> list[int]:
        return [worker.pid for module in ("vllm_lm", "torch_token2wav") for worker in official.workers(module)]

    def speak(model: str) -> bytes:
        body = {"input": "We are two.", "voice": "Clara", "response_format": "pcm", "seed": 1, "model": model}
        return httpx.post(f"{official.url}/v1/audio/speech", json=body, timeout=280).raise_for_status().content

    (third,) = (model["id"] for model in admin.get("/v1/models").json()["data"])
    alone, before = speak(third), processes()
    begun = admin.post("/admin/models/embedded/load", json={}).raise_for_status().json()
    official.until(lambda: row()["state"] != "loading", "the second model")
    assert (row()["state"], row()["reason"], row()["ready"]) == ("loaded", "", True)
    of_second = [worker for module in ("vllm_lm", "torch_token2wav") for worker in official.workers(module)[1:]]
    families = [process for worker in of_second for process in (worker, *worker.children(recursive=True))]
    assert len(of_second) == 2 and len(processes()) == 4
    with ThreadPoolExecutor(2) as both:
        spoken = dict(zip((third, "embedded"), both.map(speak, (third, "embedded")), strict=True))
    assert spoken[third] == alone != spoken["embedded"] and len(spoken["embedded"]) > 24_000
    metrics = admin.get("/metrics").text
    assert all(f'studio_requests_finished_total{{model="{name}",reason="stop"}}' in metrics for name in spoken)
    assert all(f'vllm:num_requests_running{{model="{name}"' in metrics for name in spoken)
    held_mb, planned_mb = row()["held_mb"], begun["fit"]["needs_bytes"] / 1e6
    print(f"planned {planned_mb:.0f} MB, held {held_mb:.0f} MB")
    assert 0.5 * held_mb < planned_mb < 2 * held_mb
    admin.post("/admin/models/embedded/unload", json={}).raise_for_status()
    official.until(lambda: row()["state"] == "unloaded", "the end of the second model")
    assert not psutil.wait_procs(families, timeout=120)[1]
    assert processes() == before and speak(third) == alone
