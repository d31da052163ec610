"""The evaluation's client against the real HTTP edge: the voices it makes and the speech it times."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from studio.evaluate.__main__ import Session, parse, read_utterance
from studio.evaluate.client import ServiceClient
from studio.evaluate.texts import load_prompts


def test_every_prompt_becomes_a_voice_once(service) -> None:
    client = ServiceClient(service.url)
    made = {prompt.id: client.voice_for(prompt) for prompt in load_prompts()}
    assert len(set(made.values())) == len(made)
    assert {prompt.id: client.voice_for(prompt) for prompt in load_prompts()} == made
    client.close()


def test_spoken_item_has_sound_and_times(service) -> None:
    client = ServiceClient(service.url)
    assert client.model_id()
    voice = client.voice_for(load_prompts()[0])
    utterance = client.speak("Good morning to you all.", voice, seed=5, settings={"temperature": 0.8})
    assert utterance.audio_s > 0
    assert 0 < utterance.ttfa_s <= utterance.wall_s
    client.close()


def test_unknown_voice_is_reported_with_the_services_reason(service) -> None:
    client = ServiceClient(service.url)
    with pytest.raises(httpx.HTTPStatusError, match="404"):
        client.speak("Good morning.", "nobody", seed=5)
    client.close()


def test_clips_are_spoken_where_no_judge_is_and_once(service, tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit):
        parse(["--speak-only"])
    assert "--keep-audio" in capsys.readouterr().err
    clips = tmp_path / "clips"
    asked = ["--url", service.url, "--sets", "en_seen", "--limit", "2", "--keep-audio", str(clips), "--speak-only"]
    assert Session(parse(asked)).speak() == 0
    first, second = sorted(clips.glob("*.flac"))
    assert read_utterance(first).audio_s > 0
    assert json.loads((clips / "conditions.json").read_text())["seed"] == 1
    second.unlink()
    kept = first.stat().st_mtime_ns
    assert Session(parse(asked)).speak() == 0
    assert first.stat().st_mtime_ns == kept and second.exists()
