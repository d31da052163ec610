"""The vocoder in windows of fixed shape against its exact stream and one-shot speech; on a CPU, so without graphs."""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from studio.models.hift import Hift, HiftConfig
from studio.models.hift.window import WindowedHift, WindowState, _Captured
from studio.models.hift.window_geometry import HOP_FRAMES, WindowGeometry

TOLERANCE = 1e-4  # as between the exact stream and one-shot speech
HELD_BACK = 9480


@pytest.fixture(scope="module")
def model(weights) -> Hift:
    return Hift.from_state(weights("mini", "hift")).fold_weight_norm()


@pytest.fixture
def windowed(model) -> WindowedHift:
    return WindowedHift(model, max_rows=8)


def random_mel(frames: int, seed: int) -> torch.Tensor:
    return torch.randn(80, frames, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def one_shot(model: Hift, mel: torch.Tensor, seed: int) -> torch.Tensor:
    f0 = model.predict_f0(mel[None])
    return model(mel[None], f0, model.draw_noise(f0, seed))[0]


def stream(
    vocoder: Hift | WindowedHift, mel: torch.Tensor, seed: int, split: list[int]
) -> list[torch.Tensor]:
    state, given = vocoder.open(seed), []
    for number, piece in enumerate(pieces := mel.split(split, dim=1), 1):
        given += vocoder.step([state], [piece], [number == len(pieces)])
    return given


def same(given: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(given, wanted, atol=TOLERANCE, rtol=0)


SPLITS = [
    [44, 50, 36],
    [50, 50, 30],
    [130],
    [*[1] * 25, 105],
    [17, 0, 3, 60, 50],
    [50, 80, 0],
    [129, 1],
    [100, 30],
]


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: f"{len(split)} steps, {split[0]} first")
def test_windows_give_at_each_step_what_the_exact_stream_gives(model, windowed, split):
    mel = random_mel(130, 1)
    given, wanted = stream(windowed, mel, 7, split), stream(model, mel, 7, split)
    assert [len(samples) for samples in given] == [len(samples) for samples in wanted]
    same(torch.cat(given), torch.cat(wanted))
    same(torch.cat(given), one_shot(model, mel, 7))


def test_full_size_windows_equal_one_shot_speech(weights):
    model = Hift.from_state(weights("full", "hift")).fold_weight_norm()
    mel = random_mel(121, 1)
    same(torch.cat(stream(WindowedHift(model, max_rows=1), mel, 7, [44, 50, 27])), one_shot(model, mel, 7))


@pytest.mark.parametrize("frames", [1, 2, 5, 19, 20, 21, 30, 31])
def test_speech_shorter_than_a_window_is_given_whole(model, windowed, frames):
    mel = random_mel(frames, 2)
    same(torch.cat(stream(windowed, mel, 0, [frames - 1, 1])), one_shot(model, mel, 0))
    same(torch.cat(stream(windowed, mel, 0, [frames])), one_shot(model, mel, 0))


def test_ten_seconds_stay_with_one_shot_speech(model, windowed):
    mel = random_mel(500, 3)
    same(torch.cat(stream(windowed, mel, 5, [44, *[50] * 8, 56])), one_shot(model, mel, 5))


def test_empty_stream_gives_no_samples_and_a_closed_one_refuses(windowed):
    state = windowed.open(0)
    assert windowed.step([state], [random_mel(0, 0)], [True])[0].shape == (0,)
    with pytest.raises(ValueError, match="final"):
        windowed.step([state], [random_mel(1, 0)], [True])
    assert windowed.step([], [], []) == []


def test_rows_of_different_ages_and_lengths_in_one_step_equal_themselves_alone(model, windowed):
    splits = [[50, 50, 7], [0, 50, 31], [3, 0, 190], [50, 0, 0], [44, 150, 20]]
    mels = [random_mel(sum(split), 10 + row) for row, split in enumerate(splits)]
    pieces = [mel.split(split, dim=1) for mel, split in zip(mels, splits, strict=True)]
    states = [windowed.open(row) for row in range(len(splits))]
    given = [[] for _ in splits]
    for turn in range(3):
        samples, counts = windowed.step_packed(
            states,
            torch.cat([piece[turn].T for piece in pieces]),
            [split[turn] for split in splits],
            [turn == 2] * 5,
        )
        for row, count in enumerate(counts):
            given[row].append(samples[row, :count])
            assert not samples[row, count:].any()
    for row, mel in enumerate(mels):
        same(torch.cat(given[row]), one_shot(model, mel, row))


def test_neighbours_do_not_change_a_row(windowed):
    """Another number of rows may add in another order (8.6e-6 was seen); what a neighbour says never matters."""
    mel = random_mel(100, 4)

    def beside(others: int, loudness: float) -> torch.Tensor:
        given, states = [], [windowed.open(seed) for seed in range(1 + others)]
        for number, piece in enumerate(mel.split(50, 1)):
            mels = [piece] + [loudness * random_mel(50, 5)] * others
            given.append(windowed.step(states, mels, [number == 1] * len(states))[0])
        for state in states:
            windowed.release(state)
        return torch.cat(given)

    assert (beside(4, 3.0) - beside(0, 0.0)).abs().max() < 3e-5
    assert torch.equal(beside(4, 3.0), beside(4, 0.0))


class Replayed:
    """In place of a CUDA graph: computes from fixed inputs into fixed outputs, which every replay overwrites."""

    def __init__(self, windowed: WindowedHift, rows: int) -> None:
        entries = torch.zeros(rows, 10, dtype=torch.int64)
        frames = torch.full((rows, HOP_FRAMES, 80), float("nan"))
        samples = torch.empty(rows, HOP_FRAMES * 480)
        self._windowed, self.replays = windowed, 0
        self.fixed = _Captured(self, entries, frames, samples, torch.empty(samples.shape, dtype=torch.int64))

    def replay(self) -> None:
        samples, places = self._windowed._run(self.fixed.entries, self.fixed.frames)
        self.fixed.samples.copy_(samples)
        self.fixed.places.copy_(places)
        self.replays += 1


@pytest.mark.parametrize(("rows", "launches"), [(5, {8: 1}), (7, {8: 1}), (2, {2: 1}), (11, {8: 1, 4: 1})])
def test_rows_in_graphs_that_are_filled_up_or_follow_each_other_equal_themselves_alone(model, rows, launches):
    windowed = WindowedHift(model, max_rows=rows)
    graphs = {size: Replayed(windowed, size) for size in (8, 4, 2, 1)}
    windowed._captured.update({size: graph.fixed for size, graph in graphs.items()})
    mels = [random_mel(30 - row, 20 + row) for row in range(rows)]
    given = windowed.step([windowed.open(row) for row in range(rows)], mels, [True] * rows)
    for row, mel in enumerate(mels):
        same(given[row], one_shot(model, mel, row))
    assert {size: graph.replays for size, graph in graphs.items() if graph.replays} == launches


def test_more_rows_than_the_largest_launch(model):
    windowed = WindowedHift(model, max_rows=5, largest_launch=2)
    mels = [random_mel(60, 20 + row) for row in range(5)]
    given = windowed.step([windowed.open(row) for row in range(5)], mels, [True] * 5)
    for row, mel in enumerate(mels):
        same(given[row], one_shot(model, mel, row))


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_step_that_fails_in_any_pass_leaves_the_state_as_it_was(model, windowed, monkeypatch, fails_at):
    mel, state = random_mel(250, 6), windowed.open(9)
    given = windowed.step([state], [mel[:, :50]], [False])
    runs, run = [], windowed._network.run

    def failing(*args: object) -> object:
        runs.append(1)
        if len(runs) == fails_at:
            raise torch.OutOfMemoryError("full")
        return run(*args)

    monkeypatch.setattr(windowed._network, "run", failing)
    tried = state.copy()
    with pytest.raises(torch.OutOfMemoryError):
        windowed.step([tried], [mel[:, 50:200]], [False])
    assert tried == state
    given += windowed.step([state], [mel[:, 50:200]], [False])
    given += windowed.step([state], [mel[:, 200:]], [True])
    same(torch.cat(given), one_shot(model, mel, 9))


def test_step_whose_outcome_was_thrown_away_can_be_done_again(model, windowed):
    mel, state = random_mel(200, 7), windowed.open(1)
    first = windowed.step([state], [mel[:, :44]], [False])
    for _ in range(2):
        tried = state.copy()
        second = windowed.step([tried], [mel[:, 44:170]], [False])
    third = windowed.step([tried], [mel[:, 170:]], [True])
    same(torch.cat(first + second + third), one_shot(model, mel, 1))


def test_freed_row_begins_anew_even_after_values_that_are_no_numbers(model, windowed):
    states = [windowed.open(0) for _ in range(8)]
    with pytest.raises(RuntimeError, match="taken"):
        windowed.open(0)
    windowed.step(states, [torch.full((80, 50), float("nan"))] * 8, [False] * 8)
    for state in states:
        windowed.release(state.copy())
        windowed.release(state)
    with pytest.raises(ValueError, match="released"):
        windowed.step(states[:1], [random_mel(1, 0)], [True])
    mel = random_mel(70, 8)
    again = [windowed.open(seed) for seed in range(8)]
    for row, samples in enumerate(windowed.step(again, [mel] * 8, [True] * 8)):
        same(samples, one_shot(model, mel, row))


def test_row_twice_in_one_step_is_refused(windowed):
    state: WindowState = windowed.open(0)
    with pytest.raises(ValueError, match="twice"):
        windowed.step([state, state.copy()], [random_mel(1, 0)] * 2, [False] * 2)


def test_pools_are_small_and_do_not_grow(model, windowed):
    size, state = windowed.pool_bytes, windowed.open(0)
    for _ in range(3):
        windowed.step([state], [random_mel(50, 0)], [False])
    assert windowed.pool_bytes == size and 8 * state.bytes() <= size and state.bytes() < 100_000


def test_no_pass_looks_beyond_the_newest_frame_and_none_waits_longer_than_the_exact_stream(model):
    geometry = WindowGeometry(model.config)
    assert (
        (geometry.hop, geometry.held_back)
        == (HOP_FRAMES, model.geometry.lookahead_samples)
        == (50, HELD_BACK)
    )
    assert geometry.mel.stop == 0 and geometry.f0.stop == -model.config.f0_layers
    for frames in range(0, 200, 7):
        assert geometry.samples_until(frames, None, 480) == model.geometry.samples_ready(frames)


def test_f0_in_float32_is_close(model):
    vocoder = WindowedHift(model, max_rows=1, f0_dtype=torch.float32)
    mel = random_mel(250, 9)
    difference = torch.cat(stream(vocoder, mel, 3, [44, *[50] * 4, 6])) - one_shot(model, mel, 3)
    assert difference.abs().max() < 1e-2  # and 2.9e-3 here: the phase adds its errors up


def test_float16_is_near():
    """62 dB here. The weights of the other tests are louder: 41 dB, where rounding to TF32 alone leaves 43."""
    model = Hift(HiftConfig(base_channels=32, f0_channels=32)).eval().fold_weight_norm()
    exact, half = (
        torch.cat(stream(WindowedHift(model, max_rows=1, precision=precision), random_mel(130, 9), 3, [50, 80]))
        for precision in ("float32", "float16")
    )
    assert 57 < 10 * torch.log10(exact.square().sum() / (half - exact).square().sum()) < 80


@pytest.mark.parametrize("loudness", [1e4, 1e6, 1e30])
def test_float16_ends_at_its_largest_and_not_at_what_is_no_number(model, loudness):
    windowed, mel = WindowedHift(model, max_rows=2, precision="float16"), random_mel(100, 10)
    states = [windowed.open(1), windowed.open(1)]
    loud, calm = windowed.step(states, [loudness * mel, mel], [True, True])
    assert loud.isfinite().all()
    for state in states:
        windowed.release(state)
    silent = windowed.step([windowed.open(1), windowed.open(1)], [0 * mel, mel], [True, True])
    assert torch.equal(calm, silent[1])


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_every_convolution_finds_its_layout(model, precision):
    """Channels innermost and rows behind each other: else cuDNN would copy, unseen, before it computes."""
    seen = []

    class Watched(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if function in (torch.conv2d, torch.conv_transpose2d):
                seen.append(args[0].dtype)
                assert all(given.is_contiguous(memory_format=torch.channels_last) for given in args[:2])
                assert args[0].dtype == args[1].dtype
            return function(*args, **(kwargs or {}))

    windowed = WindowedHift(model, max_rows=3, precision=precision)
    with Watched():
        windowed.step([windowed.open(row) for row in range(3)], [random_mel(50, 0)] * 3, [False] * 3)
    *decoder, last = seen
    assert len(decoder) == 79 and set(decoder) == {getattr(torch, precision)} and last == torch.float32


class OnTheDeviceAlone(TorchDispatchMode):
    """Fails where an operation has a tensor of the host, or makes one; reading a value fails on `meta` anyway."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        for value in tree_leaves((args, kwargs)):
            device = value.device if isinstance(value, torch.Tensor) else value
            assert not isinstance(device, torch.device) or device.type == "meta", operation
        return operation(*args, **(kwargs or {}))


def test_pass_can_be_captured_for_nothing_in_it_meets_the_host():
    model = Hift(HiftConfig(base_channels=32, f0_channels=32)).eval().fold_weight_norm().to("meta")
    windowed = WindowedHift(model, max_rows=4)
    entries = torch.zeros(4, 10, dtype=torch.int64, device="meta")
    with torch.inference_mode(), OnTheDeviceAlone():
        samples, places = windowed._run(entries, torch.zeros(4, HOP_FRAMES, 80, device="meta"))
    assert samples.shape == places.shape == (4, HOP_FRAMES * 480)
