"""The token2wav worker's model side on mini random weights: counts, splits, batches, one-shot, failures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from studio.backends.torch_assembly import Assembly, assemble
from studio.backends.torch_fetch import BAD_MEL, BAD_SOUND, fetch
from studio.backends.torch_rows import TorchToken2Wav
from studio.backends.torch_token2wav import _handlers, load_token2wav
from studio.backends.torch_voices import TorchVoices
from studio.engine.scheduler import Playback, RowScheduler
from studio.errors import CheckpointError, EngineDead
from studio.models.flow import Flow, stream
from studio.models.flow.paged import PagedFlow
from studio.models.flow.paged.pool import RESERVED
from studio.models.flow.sizes import GUIDANCE
from studio.models.flow.state import LEAST_FIRST_TOKENS, align_prompt
from studio.models.hift import Hift
from studio.protocols import RowStep
from studio.settings import Settings
from studio.shelf import ShelfWriter
from studio.speech import FIRST_BLOCK_TOKENS, SAMPLES_PER_TOKEN, VoicePrompt
from tests.parity.conftest import synthetic_weights

CODES = 243
VOICE_FOLDER = Path(__file__).parents[2] / "assets" / "voice"
NOTHING = np.zeros(0, np.int32)
RELATIVE_RMS = 1e-3
"""Of sums in another order. Seen: 7e-5 after four seconds. One block with a wrong look-ahead gives 0.96."""


@cache
def hift_weights() -> dict[str, torch.Tensor]:
    """Mini random weights whose pitch is near 120 Hz and hears the mel a hundredth as much as theirs.

    For rounding of the mel (below 1e-5) moves the pitch, and the source's phase adds that up over the whole sound, as
    the fixtures' README says: with their own pitch it comes to 1.8e-3 on one kind of CPU after five seconds, and on
    another to 5.7e-3 after four.
    """
    weights = dict(synthetic_weights("mini", "hift"))
    weights["f0_predictor.classifier.weight"] = weights["f0_predictor.classifier.weight"] / 100
    weights["f0_predictor.classifier.bias"] = torch.full_like(weights["f0_predictor.classifier.bias"], 120.0)
    return weights


def mini(flow_cache: str, flow_steps: int = 10, pages: int = 200, **how: Any) -> TorchToken2Wav:
    """token2wav on mini random weights. pages: those that its pool gives out, if it has one."""
    flow = Flow.from_tensors(synthetic_weights("mini", "flow"), estimator_head_dim=32, steps=flow_steps)
    hift = Hift.from_state(hift_weights())
    if flow_cache == "pages":
        page_bytes = PagedFlow.page_bytes_of(flow, torch.float32, torch.float32)
        how["pool_bytes"] = (pages + RESERVED) * page_bytes
    return assemble(flow, hift, Assembly(flow_cache=flow_cache, **{"voice_cache": 2} | how))


@pytest.fixture(params=["grown", "pages"])
def token2wav(request: pytest.FixtureRequest) -> TorchToken2Wav:
    return mini(request.param, flow_steps=10 if request.param == "grown" else 4)


@pytest.fixture(params=[("grown", 22), ("grown", 13), ("pages", 22), ("pages", 13)], ids=lambda p: f"{p[0]}-{p[1]}")
def phased(request: pytest.FixtureRequest) -> TorchToken2Wav:
    """With prompts that leave either number of tokens to the first block."""
    cache, first = request.param
    return mini(cache, flow_steps=4, first_block_tokens=first)


@pytest.fixture
def grown() -> TorchToken2Wav:
    return mini("grown")


@cache
def plain_hift() -> Hift:
    return Hift.from_state(hift_weights()).eval().fold_weight_norm()


def ready(voices: TorchVoices) -> list[str]:
    """Names of those that are prepared, the one used longest ago first."""
    return [name for name, _ in voices._ready]


def voice(seed: int, tokens: int = 40) -> VoicePrompt:
    draw = np.random.default_rng(seed)
    return VoicePrompt(
        f"voice {seed}", "hello", draw.integers(0, CODES, tokens).astype(np.int32),
        draw.normal(-6, 2, (2 * tokens, 80)).astype(np.float32), draw.normal(size=192).astype(np.float32),
    )  # fmt: skip


def speech(seed: int, count: int) -> list[int]:
    return np.random.default_rng(1000 + seed).integers(0, CODES, count).tolist()


def speak(
    token2wav: TorchToken2Wav, rows: Sequence[tuple[VoicePrompt, list[int]]], arrival: int
) -> list[np.ndarray]:
    """All rows at once through the engine's own scheduler, so many tokens of each arriving before each step."""
    scheduler, playbacks = RowScheduler(8), {}
    sound: dict[str, list[np.ndarray]] = {str(n): [] for n in range(len(rows))}
    for n, (prompt, _) in enumerate(rows):
        playbacks[str(n)] = Playback()
        scheduler.admit(str(n), token2wav.open(str(n), prompt, seed=7), 0.0, playbacks[str(n)])
    came = 0
    while len(scheduler):
        for n, (_, tokens) in enumerate(rows):
            scheduler.offer(str(n), tokens[came : came + arrival], final=came + arrival >= len(tokens))
        came += arrival
        while steps := scheduler.next_batch(0.0):
            for result in token2wav.step(steps):
                assert result.error is None and result.samples is not None
                assert result.samples.dtype == np.float32 and np.abs(result.samples).max(initial=0) <= 1
                sound[result.row_id].append(result.samples)
                playbacks[result.row_id].first_chunk_s = 0.0
    assert token2wav.stats().rows_open == 0
    return [np.concatenate(parts) for parts in sound.values()]


def assert_same_sound(sound: np.ndarray, expected: np.ndarray) -> None:
    assert sound.shape == expected.shape
    error = np.sqrt(np.mean((sound - expected) ** 2) / np.mean(expected**2))
    assert error < RELATIVE_RMS


def whole(token2wav: TorchToken2Wav, prompt: VoicePrompt, tokens: list[int]) -> np.ndarray:
    """The same without any cache: one solve under the streaming mask, one pass of the vocoder."""
    flow, hift = token2wav._flow, plain_hift()
    given = torch.from_numpy(prompt.speech_tokens.astype(np.int64)), torch.from_numpy(prompt.mel)
    prompt_tokens, prompt_mel = align_prompt(*given, token2wav._voices.tail_tokens)
    embedding = torch.from_numpy(prompt.speaker_embedding)
    with torch.inference_mode():
        mel = flow.synthesize(torch.tensor(tokens), prompt_tokens, prompt_mel, embedding, streaming=True)[None]
        f0 = hift.predict_f0(mel)
        return hift(mel, f0, hift.draw_noise(f0, seed=7))[0].numpy()


@pytest.mark.parametrize("flow_cache", ["grown", "pages"])
@pytest.mark.parametrize(("first", "samples"), [(10, 120), (13, 3000), (22, 11_640)])
def test_first_block_is_as_long_as_set_and_makes_sound_also_where_it_is_shortest(
    flow_cache: str, first: int, samples: int
) -> None:
    """The vocoder holds 9,480 samples back; the least that a setting allows is what is more than that."""
    rows = mini(flow_cache, flow_steps=1, first_block_tokens=first)
    assert rows.open("row", voice(0, 125), seed=7) == rows.facts()["first_block_tokens"] == first
    step = RowStep("row", np.array(speech(0, first), np.int32), np.zeros(3, np.int32), False)
    (result,) = rows.step([step])
    assert result.samples is not None and len(result.samples) == samples
    assert Settings(first_block_tokens=first).first_block_tokens == first


def test_embedded_voice_streams_behind_a_short_first_block_as_it_sounds_in_one_step() -> None:
    rows = load_token2wav(VOICE_FOLDER, Assembly(first_block_tokens=13))
    assert isinstance(rows, TorchToken2Wav)
    prompt, tokens = voice(0, 60), speech(0, 70)
    (streamed,) = speak(rows, [(prompt, tokens)], 5)
    assert rows.open("once", prompt, seed=7) == 13
    (once,) = rows.step([RowStep("once", np.array(tokens, np.int32), NOTHING, True)])
    assert once.samples is not None
    assert_same_sound(streamed, once.samples)


@pytest.mark.parametrize("first", [LEAST_FIRST_TOKENS - 1, FIRST_BLOCK_TOKENS + 1])
def test_first_block_that_makes_no_sound_or_is_not_cached_with_the_voice_is_refused(first: int) -> None:
    with pytest.raises(ValueError, match="first_block_tokens"):
        Settings(first_block_tokens=first)


def test_voice_takes_no_more_pages_and_a_row_one_for_its_first_block_wherever_its_border_is() -> None:
    """Of 125 tokens, cut to end 3 or 12 behind a border, four blocks are the voice's in either case."""
    for first in (22, 13):
        rows = mini("pages", flow_steps=1, first_block_tokens=first)
        rows.open("row", voice(0, 125), seed=7)
        assert rows.stats().flow_pages - rows.stats().flow_pages_free == 4
        tokens = np.array(speech(0, first + 3), np.int32)
        rows.step([RowStep("row", tokens[:first], tokens[first:], False)])
        assert rows.stats().flow_pages - rows.stats().flow_pages_free == 5


@pytest.mark.parametrize("count", [1, 24, 60])
def test_samples_add_up_to_960_a_token(token2wav: TorchToken2Wav, count: int) -> None:
    for arrival in (1, count):
        (sound,) = speak(token2wav, [(voice(0), speech(0, count))], arrival)
        assert len(sound) == count * SAMPLES_PER_TOKEN


@pytest.mark.parametrize("prompt_tokens", [10, 25, 53])
def test_any_split_gives_the_sound_of_one_whole_pass(phased: TorchToken2Wav, prompt_tokens: int) -> None:
    prompt, tokens = voice(1, prompt_tokens), speech(1, 131)
    expected = whole(phased, prompt, tokens)
    for arrival in (8, 40, 131):
        (sound,) = speak(phased, [(prompt, tokens)], arrival)
        assert_same_sound(sound, expected)


def test_row_sounds_the_same_alone_and_among_others(phased: TorchToken2Wav) -> None:
    rows = [(voice(n, 30 + 11 * n), speech(n, 40 + 23 * n)) for n in range(3)]
    together = speak(phased, rows, 31)
    for row, sound in zip(rows, together, strict=True):
        (alone,) = speak(phased, [row], 31)
        assert_same_sound(sound, alone)


def test_row_without_a_cache_sounds_as_with_one(phased: TorchToken2Wav) -> None:
    """What memory pressure makes of it, from its second step on, knows the same border."""
    prompt, tokens = voice(2, 60), speech(2, 90)
    first = phased.open("row", prompt, seed=7)
    borders, parts = [0, first, first + 25, len(tokens)], []
    for number, (begin, end) in enumerate(pairwise(borders)):
        ahead = np.array(tokens[end : end + 3], np.int32)
        step = RowStep("row", np.array(tokens[begin:end], np.int32), ahead, not len(ahead))
        (result,) = phased.step([step])
        assert result.samples is not None
        parts.append(result.samples)
        if number == 0:
            phased._rows["row"].release()
            assert phased._rows["row"].first_block_tokens == first
    assert_same_sound(np.concatenate(parts), whole(phased, prompt, tokens))


def test_rows_of_other_guidance_beside_each_other_sound_as_alone_cached_or_not(token2wav: TorchToken2Wav) -> None:
    """A row keeps the guidance it was opened with, and a voice is prepared for each: its prompt was solved with it."""
    tokens = np.array(speech(0, 40), np.int32)
    first = token2wav.open("0", voice(0), 7)
    steps = RowStep("", tokens[:first], tokens[first:][:3], False), RowStep("", tokens[first:], NOTHING, True)

    def spoken(*guidances: float | None, cached: bool = True) -> list[np.ndarray]:
        names = [str(number) for number in range(len(guidances))]
        for name, guidance in zip(names, guidances, strict=True):
            token2wav.open(name, voice(0), 7, guidance)
            if not cached:
                token2wav._rows[name].release()
        parts = [token2wav.step([replace(step, row_id=name) for name in names]) for step in steps]
        assert not [result.error for part in parts for result in part if result.error]
        return [np.concatenate([r.samples for r in row if r.samples is not None]) for row in zip(*parts, strict=True)]

    own, strong = spoken(None, 2.0)
    assert token2wav.stats().voices_cached == 2
    assert_same_sound(strong, spoken(2.0)[0])
    assert_same_sound(strong, spoken(2.0, cached=False)[0])
    assert_same_sound(own, spoken(GUIDANCE)[0])
    assert np.abs(own - strong).max() > 0.01


def test_voice_is_prepared_once_whether_the_flow_s_own_guidance_is_named_or_not(token2wav: TorchToken2Wav) -> None:
    """It was prepared twice, and kept twice."""
    while not token2wav.prepare(voice(0)):
        pass
    assert token2wav.prepare(voice(0), GUIDANCE)
    for row_id, guidance in (("own", None), ("named", GUIDANCE)):
        token2wav.open(row_id, voice(0), 7, guidance)
    assert token2wav.stats().voices_cached == 1
    assert not token2wav.prepare(voice(1, tokens=103))
    token2wav.give_up(voice(1, tokens=103), GUIDANCE)
    assert not token2wav._voices._begun


def test_same_seed_gives_the_same_samples_and_another_seed_others(token2wav: TorchToken2Wav) -> None:
    row = (voice(3), speech(3, 60))
    (first,), (again,) = speak(token2wav, [row], 60), speak(token2wav, [row], 60)
    assert np.array_equal(first, again)
    token2wav.open("other", row[0], seed=8)
    (other,) = token2wav.step([RowStep("other", np.array(row[1], np.int32), np.zeros(0, np.int32), True)])
    assert other.samples is not None and not np.array_equal(other.samples, first)


def test_not_finite_row_ends_alone(token2wav: TorchToken2Wav) -> None:
    bad = voice(4)
    bad.speaker_embedding[:] = np.nan
    first = token2wav.open("bad", bad, 0)
    token2wav.open("good", voice(5), 0)
    token2wav.open("gone", voice(5), 0)
    token2wav.drop("gone")
    tokens, ahead = np.array(speech(4, first), np.int32), np.zeros(3, np.int32)
    results = token2wav.step([RowStep(row, tokens, ahead, False) for row in ("bad", "good", "gone")])
    assert [r.error for r in results] == ["the mel is not finite", None, "no such row"]
    assert results[0].samples is None and results[1].samples is not None and token2wav.stats().rows_open == 1
    token2wav.open("alone", voice(5), 0)
    (alone,) = token2wav.step([RowStep("alone", tokens, ahead, False)])
    assert alone.samples is not None
    assert_same_sound(results[1].samples, alone.samples)


def test_sound_that_is_not_finite_ends_its_row_alone() -> None:
    mels = {name: torch.zeros(80, frames) for name, frames in (("nan", 3), ("fine", 2), ("inf", 1), ("none", 0))}
    waves = {name: torch.linspace(-0.5, 0.5, 480 * mel.shape[1]) for name, mel in mels.items()}
    waves["nan"][7], waves["inf"][-1] = torch.nan, -torch.inf
    sounds, problems = fetch(mels, waves)
    assert problems == {"nan": BAD_SOUND, "inf": BAD_SOUND} and list(sounds) == ["fine", "none"]
    assert np.array_equal(sounds["fine"], waves["fine"].numpy()) and len(sounds["none"]) == 0
    mels["fine"][40, 1] = torch.inf
    assert fetch(mels, waves)[1] == problems | {"fine": BAD_MEL}


def test_step_asks_no_tensor_for_its_value(token2wav: TorchToken2Wav) -> None:
    """On a GPU each such question waits for all that was begun; the one wait is `fetch`'s, at the end."""
    for name in ("a", "b"):
        token2wav.open(name, voice(5), 0)
    tokens, ahead = np.array(speech(4, 25), np.int32), np.zeros(3, np.int32)
    with Questions() as questions:
        token2wav.step([RowStep(name, tokens, ahead, False) for name in ("a", "b")])
        token2wav.step([RowStep(name, tokens, NOTHING, True) for name in ("a", "b")])
        assert questions.asked == []
        bool(torch.ones(1))
        assert len(questions.asked) == 1


class Questions(TorchDispatchMode):
    """Hears of each read of a tensor's value by the host."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        if func.overloadpacket.__name__ in ("_local_scalar_dense", "is_nonzero", "item", "nonzero"):
            self.asked.append(str(func))
        return func(*args, **(kwargs or {}))


def test_row_longer_than_the_flows_noise_ends_alone(token2wav: TorchToken2Wav) -> None:
    for row in ("long", "short"):
        token2wav.open(row, voice(6), 0)
    tokens = {"long": np.zeros(7500, np.int32), "short": np.zeros(25, np.int32)}
    long, short = token2wav.step([RowStep(row, t, np.zeros(0, np.int32), True) for row, t in tokens.items()])
    assert long.error is not None and "15000" in long.error
    assert short.error is None and short.samples is not None and len(short.samples) == 25 * 960


def test_voices_used_last_are_kept(token2wav: TorchToken2Wav) -> None:
    for seed in (0, 1, 0, 2):
        token2wav.open("row", voice(seed), 0)
    assert ready(token2wav._voices) == ["voice 0", "voice 2"]
    assert token2wav.stats().voices_cached == 2 and token2wav.stats().state_bytes > 0


def test_voices_are_bounded_by_bytes_too_and_the_newest_stays(token2wav: TorchToken2Wav) -> None:
    one = TorchVoices(token2wav._flow, 9)
    one.prepare(one.of(voice(0)))
    voices = TorchVoices(token2wav._flow, 9, most_bytes=2 * one.bytes)
    for seed in range(3):
        voices.prepare(voices.of(voice(seed)))
    assert ready(voices) == ["voice 1", "voice 2"]
    voices.prepare(voices.of(voice(3, tokens=115)))
    assert ready(voices) == ["voice 3"] and voices.bytes > 2 * one.bytes


@pytest.fixture
def failing(grown: TorchToken2Wav, monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """What the flow's next steps raise, one each; and those of the prompts."""
    errors: list[Exception] = []

    def step(*args: object, of: Callable[..., object]) -> object:
        if errors:
            raise errors.pop(0)
        return of(*args)

    monkeypatch.setattr(grown._flow, "step", partial(step, of=grown._flow.step))
    monkeypatch.setattr(stream, "step", partial(step, of=stream.step))
    return errors


def test_where_the_gpu_s_memory_is_full_voices_not_in_use_are_forgotten_once(
    grown: TorchToken2Wav, failing: list[Exception]
) -> None:
    tokens, full = speech(0, 26), torch.OutOfMemoryError("full")
    expected = whole(grown, voice(0), tokens)
    grown.prepare(voice(1))
    grown.open("row", voice(0), 7)
    failing.append(full)
    (result,) = grown.step([RowStep("row", np.array(tokens, np.int32), np.zeros(0, np.int32), True)])
    assert result.error is None and result.samples is not None
    assert_same_sound(result.samples, expected)
    assert ready(grown._voices) == ["voice 0"]
    failing.append(full)
    while not grown.prepare(voice(2)):  # its tokens were not lost in the failed try
        pass
    again, same = TorchVoices(grown._flow, 1), grown._voices.of(voice(2))
    assert torch.equal(grown._voices.get(same).rates[2].kept, again.get(same).rates[2].kept)


def test_fault_of_the_gpu_ends_the_worker_and_any_other_error_the_row(
    grown: TorchToken2Wav, failing: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    row = RowStep("row", np.array(speech(0, 60), np.int32), np.zeros(0, np.int32), True)
    grown.open("row", voice(0), 7)
    failing.append(RuntimeError("of this row"))
    assert grown.step([row])[0].error == "flow: of this row"
    grown.open("row", voice(0), 7)
    failing.append(torch.AcceleratorError("illegal"))
    with pytest.raises(EngineDead):
        grown.step([row])
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    failing.append(RuntimeError("as it is told at first"))
    with pytest.raises(EngineDead):
        grown.step([row])


def test_voice_prepared_in_turns_between_steps_sounds_as_one_prepared_at_once(token2wav: TorchToken2Wav) -> None:
    newcomer, tokens = voice(1, tokens=103), speech(1, 60)
    assert token2wav.prepare(voice(0)) or token2wav.prepare(voice(0))
    token2wav.open("streaming", voice(0), 1)
    turns = 1
    while not token2wav.prepare(newcomer):
        turns += 1
        tokens_now = np.asarray(speech(0, 25), np.int32)
        (result,) = token2wav.step([RowStep("streaming", tokens_now, np.zeros(3, np.int32), False)])
        assert result.error is None
    assert turns == 4  # blocks, one a turn, and between any two of them others were stepped
    token2wav.drop("streaming")
    (sound,) = speak(token2wav, [(newcomer, tokens)], 60)
    assert_same_sound(sound, whole(token2wav, newcomer, tokens))


@pytest.mark.parametrize(("leave", "turns"), [(2, 1), (1, 4)], ids=["all leave", "one stays"])
async def test_what_is_prepared_of_a_voice_is_kept_as_long_as_somebody_waits_for_it(
    token2wav: TorchToken2Wav, monkeypatch: pytest.MonkeyPatch, leave: int, turns: int
) -> None:
    taken, began, go_on = [], threading.Event(), threading.Event()

    def prepare(
        voice: VoicePrompt, guidance: float | None, turn: Callable[..., bool] = token2wav.prepare
    ) -> bool:
        taken.append(voice.key)
        began.set()
        assert go_on.wait(120)
        return turn(voice, guidance)

    monkeypatch.setattr(token2wav, "prepare", prepare)
    with ThreadPoolExecutor(1) as stepping:
        handlers = _handlers(token2wav, None, stepping, {}, ShelfWriter())  # type: ignore[arg-type]
        asked = {"voice": voice(1, 203), "seed": 0}
        named = {"a": {}, "b": {"guidance": GUIDANCE}}  # the same either way
        opening = [asyncio.ensure_future(handlers["open"](row_id=row, **asked, **how)) for row, how in named.items()]
        await asyncio.to_thread(began.wait, 120)
        for task in opening[:leave]:
            task.cancel()
        await asyncio.wait(opening[:leave])
        go_on.set()
        await asyncio.wait(opening)
        await handlers["drop"](row_id="a")  # behind all that the one thread still had to do
    assert len(taken) == turns and not token2wav._voices._begun
    assert len(token2wav._voices) == len(token2wav._rows) == 2 - leave


def test_warm_up_leaves_nothing_behind(token2wav: TorchToken2Wav) -> None:
    done: list[float] = []
    token2wav.warm_up(done.append)
    stats = token2wav.stats()
    assert (stats.rows_open, stats.voices_cached, stats.steps, stats.audio_seconds_total) == (0, 0, 0, 0.0)
    assert stats.flow_pages_free == stats.flow_pages and done == sorted(done) and 0 < done[0] <= done[-1] < 1


def test_checkpoint_without_weights_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"flow\.pt is missing"):
        load_token2wav(tmp_path)


def test_checkpoint_with_a_tensor_of_another_shape_names_file_and_tensor(
    tmp_path: Path, weights: Callable[..., dict[str, torch.Tensor]]
) -> None:
    torch.save(weights("mini", "flow") | {"encoder_proj.bias": torch.zeros(3)}, tmp_path / "flow.pt")
    torch.save(weights("mini", "hift"), tmp_path / "hift.pt")
    (tmp_path / "cosyvoice2.yaml").write_text("sizes: {flow: {est_head_dim: 32}}\n")
    with pytest.raises(CheckpointError, match=r"^flow\.pt in .* does not fit: encoder_proj\.bias has shape \[3\]"):
        load_token2wav(tmp_path)


def test_folder_of_the_official_layout_is_loaded(
    tmp_path: Path, weights: Callable[..., dict[str, torch.Tensor]]
) -> None:
    for part in ("flow", "hift"):
        torch.save(weights("mini", part), tmp_path / f"{part}.pt")
    (tmp_path / "cosyvoice2.yaml").write_text("sizes: {flow: {est_head_dim: 32}}\n")
    loaded = load_token2wav(tmp_path)
    (sound,) = speak(loaded, [(voice(0), speech(0, 30))], 30)
    assert len(sound) == 30 * SAMPLES_PER_TOKEN
