"""The ears' real worker: speakers counted in clips with known faults, words of clips, and a process without torch."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from studio.audio.decode import decode_clip
from studio.audio.resample import resample
from studio.checks.clip import as_heard, examine_clip
from studio.checks.take import Sound, best_of, check_take
from studio.checks.words import DIFFERS_BELOW, agreement
from studio.engine.ears_client import EarsClient
from studio.engine.worker import WorkerProcess
from studio.errors import AsrUnavailable
from studio.speech import SAMPLE_RATE_HZ
from tests.faulty_clips import TWO_SPEAKERS, clean, clean_clips, clips_with
from tests.real_studio import tiny_whisper

KORE = "The harbor was calm at dawn, and a few small boats were already heading out to sea."


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[WorkerProcess]:
    settings = {"asr_model": tiny_whisper(), "asr_threads": 1, "cache_dir": str(tmp_path)}
    process = WorkerProcess([sys.executable, "-m", "studio.backends.ears"], "ears", settings)
    await process.start()
    yield process
    await process.close()


@pytest.fixture
async def ears(worker: WorkerProcess) -> EarsClient:
    await worker.wait_ready()
    return EarsClient(worker, tiny_whisper())


async def test_at_least_nine_of_ten_verdicts_on_speakers_are_right_and_none_on_clean_clips(ears: EarsClient) -> None:
    async def told(data: bytes) -> str:
        findings = (await examine_clip(data, ears)).diagnosis.findings
        return next(f.severity for f in findings if f.topic == "speakers")

    assert {clip.name for clip in clean_clips() if await told(clip.data) != "green"} == set()
    for fault in ("level", "clipping", "snr 15 dB", "silence"):
        assert {clip.name for clip in clips_with(fault) if await told(clip.data) != "green"} == set()
    right = Counter([await told(clip.data) == "amber" for clip in clips_with(TWO_SPEAKERS)])
    assert right.total() == 20 and right[True] >= 18


async def test_words_of_a_clip_are_heard_and_those_of_another_differ(ears: EarsClient) -> None:
    clip = decode_clip(next(c.data for c in clean_clips() if c.name == "af_kore_en"))
    heard = await ears.transcribe(as_heard(clip.samples, clip.sample_rate_hz))
    assert agreement(KORE, heard.text) > 0.9
    assert agreement("Please leave the keys on the kitchen table.", heard.text) < DIFFERS_BELOW
    times = [word.start_s for word in heard.words]
    assert times == sorted(times) and times[0] >= 0 and heard.words[-1].end_s < clip.seconds + 0.5


async def test_the_worker_has_no_torch_even_while_it_hears_words(ears: EarsClient, worker: WorkerProcess) -> None:
    await ears.transcribe(as_heard(*clean("af_kore_en")))
    assert worker.state.pid is not None
    loaded = {Path(file.path).name for file in psutil.Process(worker.state.pid).memory_maps()}
    assert any(name.startswith("libctranslate2") for name in loaded)
    assert not any(name.startswith("libtorch") for name in loaded)


async def test_model_that_cannot_be_loaded_is_told_and_voices_are_still_judged(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    settings = {"asr_model": str(tmp_path / "empty"), "cache_dir": str(tmp_path)}
    process = WorkerProcess([sys.executable, "-m", "studio.backends.ears"], "ears", settings)
    await process.start()
    ears = EarsClient(process, settings["asr_model"])
    try:
        with pytest.raises(AsrUnavailable, match="asr_model"):
            await ears.transcribe(as_heard(*clean("af_kore_en")))
        assert (await ears.embed([as_heard(*clean("af_kore_en"))])).shape == (1, 192)
    finally:
        await process.close()


async def test_take_is_checked_for_words_likeness_and_loudness(ears: EarsClient) -> None:
    samples = resample(*clean("af_kore_en"), SAMPLE_RATE_HZ)
    good = await check_take(Sound(samples, KORE, "", clean("mix_kore_en")), ears)
    assert good.word_error_ratio == 0 and good.likeness is not None and good.marks == ()
    other_text = KORE.replace("a few small boats", "two ships")
    bad = await check_take(Sound(samples, other_text, "", clean("am_onyx_en")), ears)
    assert bad.word_error_ratio and bad.likeness is not None and bad.likeness < good.likeness
    assert bad.penalty > good.penalty and best_of([bad, good]) == 1
