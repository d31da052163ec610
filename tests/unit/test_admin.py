"""Shares of the KV cache, plans, sessions and the ring of samples, each by itself."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from studio.admin.access import FAILURE_WINDOW_S, SESSION_S, AdminAccess
from studio.admin.knobs import rows, tunable, worker_of
from studio.admin.kv_pages import kv_pages
from studio.admin.log import ChangeLog
from studio.admin.monitor import COARSE_EVERY, FINE_SAMPLES, Monitor
from studio.admin.planner import LmSizes, Machine, Workload, plan
from studio.admin.processes import ProcessMeter
from studio.admin.provider import Client, Provider
from studio.admin.sign_in import FLOW_S, Answer, SignIn
from studio.admin.tuning import Tuning
from studio.backends.fake import ManualClock
from studio.checkpoint import TOKENIZER_FOLDER, Checkpoint
from studio.engine.stats import EngineState, EngineStats, Histogram, InFlight, Recorder
from studio.engine.step_cost import CostLine, Costs
from studio.engine.worker import WorkerState
from studio.errors import AdminLocked, AdminRefused, CheckpointError, EngineNotReady, InvalidRequest
from studio.gpu_shares import GRAPH_BYTES
from studio.protocols import LmStats
from studio.settings import Settings

SIZES = LmSizes(layers=8, kv_heads=2, head_size=64, weight_bytes=10**9)
CPU = Machine("cpu")


def in_flight(name: str, tokens: int, prefix: int, voice: str = "v") -> InFlight:
    return InFlight(name, "client", voice, "speaking", 1.0, 10, tokens, prefix, 0.0)


def test_shares_are_whole_blocks_and_a_shared_begin_counts_once() -> None:
    lm = LmStats(kv_cache_usage_ratio=11 / 100, kv_cache_blocks=100, block_size_tokens=32)
    requests = [
        in_flight("a", 100, 70), in_flight("b", 130, 70), in_flight("c", 33, 40, "other"), in_flight("d", 0, 0),
    ]  # fmt: skip
    pages = kv_pages(requests, lm)
    assert [(s.request_id, s.blocks, s.shared) for s in pages.shares] == [("a", 4, 0), ("b", 5, 2), ("c", 2, 0)]
    assert (pages.held, pages.difference) == (11, 2)


def test_plan_counts_bytes_as_the_cache_has_them() -> None:
    settings = Settings(kv_cache_gib=1.0, block_size=32, max_num_seqs=512, max_running=512)
    found = plan(settings, SIZES, CPU)
    assert found.kv_bytes_per_token == 2 * 8 * 2 * 64 * 4
    assert found.kv_blocks == 2**30 // (32 * found.kv_bytes_per_token)
    assert found.streams == found.kv_blocks // found.request_blocks and found.bound == "kv_cache"
    halved = plan(settings.model_copy(update={"dtype": "bfloat16"}), SIZES, CPU)
    assert halved.kv_blocks == 2 * found.kv_blocks


CONFIG = {
    "vocab_size": 9, "hidden_size": 896, "intermediate_size": 4, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2,
}  # fmt: skip


def described(folder: Path, config: str) -> Checkpoint:
    (folder / TOKENIZER_FOLDER).mkdir()
    (folder / TOKENIZER_FOLDER / "config.json").write_text(config)
    return Checkpoint(folder, "any")


@pytest.mark.parametrize(("more", "head"), [({}, 64), ({"head_dim": None}, 64), ({"head_dim": 128}, 128)])
def test_sizes_of_the_lm_are_its_config_s(tmp_path: Path, more: dict[str, int | None], head: int) -> None:
    sizes = LmSizes.of(described(tmp_path, json.dumps(CONFIG | more)))
    assert (sizes.layers, sizes.kv_heads, sizes.head_size) == (24, 2, head)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("{", "cannot be read"),
        ("[1]", "no JSON object"),
        (json.dumps({k: v for k, v in CONFIG.items() if k != "hidden_size"}), "it has no hidden_size"),
        (json.dumps(CONFIG | {"num_attention_heads": 0}), "num_attention_heads is 0"),
        (json.dumps(CONFIG | {"head_dim": "64"}), "head_dim is '64'"),
    ],
)
def test_a_broken_config_of_the_lm_names_the_file_and_the_remedy(tmp_path: Path, config: str, told: str) -> None:
    with pytest.raises(CheckpointError, match=rf"config\.json.*{told}.*Fetch it again"):
        LmSizes.of(described(tmp_path, config))


def test_plan_names_what_binds_and_whether_a_request_fits() -> None:
    few = plan(Settings(max_num_seqs=3), SIZES, CPU)
    assert (few.streams, few.bound) == (3, "max_num_seqs")
        # The LM makes a token in 12 ms, and 20 ms for two of them; token2wav a second of sound in 0.3 s, two in 0.7 s.
    costs = Costs(CostLine(0.004, 0.008), CostLine(-0.1, 0.016))
    slow = plan(Settings(), SIZES, Machine("cpu", costs=costs), Workload(clip_s=6.0, streams=1))
    assert (slow.streams, slow.bound) == (2, "token2wav")
    for settings, first in ((Settings(), 22), (Settings(first_block_tokens=13), 13)):
        found = plan(settings, SIZES, Machine("cpu", costs=costs), Workload(clip_s=6.0, streams=1))
        assert found.first_audio_s == pytest.approx((first + 3) * 0.012 + 0.3)
        rest_s = (6 - first / 25) * 0.3
        assert found.audio_s_per_s == pytest.approx(6 / ((first + 3) * 0.012 + 0.3 + rest_s))
    later = plan(Settings(first_hop_tokens=50), SIZES, Machine("cpu", costs=costs), Workload(streams=1))
    assert later.first_audio_s == pytest.approx(50 * 0.012 + 0.3)
    assert not plan(Settings(kv_cache_gib=0.05, max_model_len=32768), SIZES, CPU).fits


def test_plan_of_a_gpu_leaves_room_for_the_weights() -> None:
    gpu = Machine("cuda", 10 * 10**9)
    found = plan(Settings(gpu_memory_utilization=0.5), SIZES, gpu)
    assert found.kv_blocks == (5 * 10**9 - 10**9) // (32 * 2 * 8 * 2 * 64 * 2)


def test_plan_of_engines_on_one_gpu_counts_weights_and_graphs_once_each() -> None:
    gpu = Machine("cuda", 10 * 10**9)
    block = 32 * 2 * 8 * 2 * 64 * 2
    one, two = (plan(Settings(gpu_memory_utilization=0.5, lm_engines=n), SIZES, gpu) for n in (1, 2))
    assert (one.kv_blocks, one.engine_tokens) == ((5 * 10**9 - 10**9) // block, one.kv_tokens)
    assert two.kv_blocks == 2 * ((5 * 10**9 // 2 - 10**9 - GRAPH_BYTES) // block)
    assert plan(Settings(gpu_memory_utilization=0.4, lm_engines=2), SIZES, gpu).kv_blocks == 0


def test_a_request_has_its_place_in_the_cache_of_one_engine() -> None:
    """513 blocks of 256 KiB: two engines have 256 each, where 13 blocks of a request find room 19 times."""
    settings = Settings(kv_cache_gib=513 / 2**12, block_size=32, max_model_len=8192, max_num_seqs=512, max_running=512)
    load = Workload(prompt_s=3.0, clip_s=8.0)
    of_one, of_two = (plan(settings.model_copy(update={"lm_engines": n}), SIZES, CPU, load) for n in (1, 2))
    assert (of_one.kv_blocks, of_two.kv_blocks, of_two.engine_tokens) == (513, 512, 8192)
    assert of_two.request_blocks == 13 and (of_one.streams, of_two.streams) == (39, 38)
    longer = settings.model_copy(update={"max_model_len": 8193})
    assert of_two.fits and plan(longer, SIZES, CPU).fits
    assert not plan(longer.model_copy(update={"lm_engines": 2}), SIZES, CPU).fits


def test_memory_of_another_engine_on_a_cpu_is_that_of_its_weights() -> None:
    present = Settings(kv_cache_gib=1.0)
    cpu = Machine("cpu", lm_mb=5000.0, present=present)
    wanted = present.model_copy(update={"lm_engines": 2})
    assert plan(wanted, SIZES, cpu).lm_mb == pytest.approx(5000 + SIZES.weight_bytes / 1e6)
    assert plan(present, SIZES, Machine("cpu", lm_mb=6000.0, present=wanted)).lm_mb == pytest.approx(5000)


def test_streams_that_the_flows_pages_hold_follow_precision_and_share() -> None:
    """13 s of a stream are 650 frames of 1 MB; the pool was told under the settings of now."""
    now = Settings()
    gpu = Machine("cuda", 141 * 10**9, present=now, flow_frame_bytes=10**6, flow_pool_bytes=65 * 10**9)

    def streams(prompt_s: float = 5.0, **changes: object) -> tuple[int, int]:
        wanted = now.model_copy(update={"max_running": 512, "max_num_seqs": 512} | changes)
        found = plan(wanted, SIZES, gpu, Workload(prompt_s))
        assert found.bound == "flow_memory"
        return found.streams, found.flow_bytes

    assert streams() == (100, 650 * 10**6)
    assert streams(flow_precision="bfloat16") == (50, 1300 * 10**6)
    assert streams(gpu_memory_utilization=0.4) == (int(50.9 / 0.65), 650 * 10**6)
    assert streams(flow_pool_gib=13e9 / 2**30) == (20, 650 * 10**6)
    # Of 4.4 s, 110 tokens, four blocks and 3 tokens are kept, or three and 12; 200 more end in the ninth block behind.
    assert streams(4.4, first_block_tokens=22) == (100, 650 * 10**6)
    assert streams(4.4, first_block_tokens=13) == (108, 600 * 10**6)
    assert streams(0.0) == (162, 400 * 10**6)


def test_plan_of_a_gpu_that_told_no_memory_refuses_nothing() -> None:
    assert plan(Settings(), SIZES, Machine("cuda")).fits


def test_sessions_end_by_themselves_and_failures_are_forgiven_in_time() -> None:
    clock = ManualClock()
    access = AdminAccess("secret", clock)
    cookie = access.enter("secret")
    assert access.who(cookie)
    clock.advance(SESSION_S + 1)
    with pytest.raises(AdminRefused):
        access.who(cookie)
    for _ in range(5):
        with pytest.raises(AdminRefused):
            access.enter("guess")
    with pytest.raises(AdminLocked):
        access.enter("secret")
    clock.advance(FAILURE_WINDOW_S)
    assert access.who(access.enter("secret"))


def test_every_knob_says_its_range_and_when_it_acts() -> None:
    table = {str(row["name"]): row for row in rows(Settings())}
    assert table.keys() == tunable().keys()
    assert table["max_num_seqs"] | {"effect": ""} == {
        "name": "max_num_seqs", "group": "lm", "unit": "requests", "least": 1, "most": 512, "step": None,
        "choices": None,
        "default": 16, "value": 16, "effect": "", "kind": "int", "acts": "restart",
    }  # fmt: skip
    assert worker_of("flow_steps") == "token2wav" and worker_of("top_p") is None
    assert not {"api_key", "admin_password", "data_dir", "port"} & table.keys()


class StillEngine:
    """Speaks steadily: each look finds 25 more tokens and one more second of sound."""

    def __init__(self) -> None:
        self.looks = 0

    async def stats(self) -> EngineStats:
        self.looks += 1
        nothing = Histogram((1.0,)).snapshot()
        state = EngineState(True, False, False, "stage.ready", 1.0, 0.0, (), 1, 0)
        return EngineStats(
            state, {}, *[nothing] * 7, float(self.looks), 0, None, (), 1,
            lm=LmStats(0.5, 100, 32, 1, generated_tokens=25 * self.looks),
        )  # fmt: skip

    def in_flight(self) -> tuple[InFlight, ...]:
        return (in_flight("a", 64, 0),)


def test_monitor_keeps_ten_minutes_finely_and_a_day_by_the_minute() -> None:
    clock = ManualClock()
    monitor = Monitor(StillEngine(), ProcessMeter(dict), clock, clock.sleep)

    async def look(times: int) -> None:
        for _ in range(times):
            clock.advance(1.0)
            await monitor.sample()

    asyncio.run(look(FINE_SAMPLES + COARSE_EVERY))
    fine, coarse = monitor.history("10m"), monitor.history("24h")
    assert len(fine["t"]) == FINE_SAMPLES and len(coarse["t"]) == (FINE_SAMPLES + COARSE_EVERY) // COARSE_EVERY
    assert fine["lm_tokens_per_s"][-1] == pytest.approx(25) and fine["audio_s_per_s"][-1] == pytest.approx(1)
    assert coarse["kv"] == [0.5] * len(coarse["t"])
    shown = json.loads(monitor.live)
    assert shown["pages"]["difference"] == 50 - 2


class SteppingEngine(StillEngine):
    """What token2wav told of its steps is what the test recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.recorder = Recorder()

    async def stats(self) -> EngineStats:
        return self.recorder.stats((await super().stats()).state, 0, measured_rate=None, rows_open=0)


def test_times_of_flow_and_vocoder_are_means_of_a_step_now_and_since_the_look_before() -> None:
    engine, clock = SteppingEngine(), ManualClock()
    monitor = Monitor(engine, ProcessMeter(dict), clock, clock.sleep)
    for told in ((0.5, 0.0, 0.0), (0.25, 0.125, 0.0625), (0.25, 0.375, 0.0625), None):
        if told:
            engine.recorder.stepped(4, *told)
        clock.advance(1.0)
        asyncio.run(monitor.sample())
    kept = monitor.history("10m")
    assert kept["step_s"] == [None, 0.25, 0.25, None]  # the first look has none before it
    assert kept["flow_s"] == [None, 0.125, 0.375, None]
    assert kept["vocoder_s"] == [None, 0.0625, 0.0625, None]
    shown = json.loads(monitor.live)
    assert (shown["flow_s"], shown["vocoder_s"]) == (0.25, 0.0625)  # of the two steps that told


def test_session_of_somebody_who_is_known_has_the_name_and_the_same_bound() -> None:
    clock = ManualClock()
    access = AdminAccess("secret", clock)
    cookie = access.let_in("ada")
    clock.advance(SESSION_S - 1)
    assert access.who(cookie) == "ada"  # using it does not make it last longer
    clock.advance(1)
    with pytest.raises(AdminRefused):
        access.who(cookie)


class Published(Provider):
    """A provider whose document was read, so that nothing is asked over the network."""

    async def _published(self) -> dict[str, str]:
        return {"issuer": "https://id.example", "authorization_endpoint": "https://id.example/authorize"}


async def test_sign_in_that_is_begun_ends_within_ten_minutes_or_is_begun_anew() -> None:
    clock = ManualClock()
    sign_in = SignIn(Published("https://id.example", Client("studio", "", "openid")), (("sub", "1"),), clock)
    address, cookie = await sign_in.begin("https://studio.example/back")
    state = parse_qs(urlsplit(address).query)["state"][0]
    answer = Answer(state, error="access_denied")
    with pytest.raises(AdminRefused, match="access_denied"):
        await sign_in.end(cookie, answer, "")
    with pytest.raises(AdminRefused) as forged:
        await sign_in.end(cookie, replace(answer, error="no\nINFO administrator 'eve' signed in"), "")
    assert "\n" not in str(forged.value)
    with pytest.raises(AdminRefused, match="iss"):
        await sign_in.end(cookie, replace(answer, iss="https://evil.example"), "")
    later = f"{int(FLOW_S) * 9}.{cookie.partition('.')[2]}"
    clock.advance(FLOW_S + 1)
    for given in (cookie, later, ""):
        with pytest.raises(AdminRefused, match="too long ago"):
            await sign_in.end(given, answer, "")


class Door:
    """The engine's places, and who waits for them: nobody leaves while `stuck`."""

    stuck = held = False

    async def hold(self, *, abort: bool) -> None:
        self.held = True
        if self.stuck:
            await asyncio.Event().wait()

    def release(self) -> None:
        self.held = False


class Sleeper:
    state = WorkerState("lm", phase="ready", facts={"device": "cuda"})


@pytest.fixture
def resting(tmp_path: Path) -> Tuning:
    settings = Settings(enable_sleep_mode=True)
    log = ChangeLog(tmp_path)
    machine = Machine("cuda")
    return Tuning(
        Door(), {"lm": Sleeper()}, settings, log,  # type: ignore[arg-type]
        lambda wanted, workload: plan(wanted, SIZES, machine, workload), lambda wanted: None,
        lambda: asyncio.sleep(0, {}), dict,
    )  # fmt: skip


@pytest.mark.parametrize(("stuck", "told"), [(True, "TimeoutError"), (False, "no room")])
async def test_lm_that_cannot_sleep_leaves_nobody_waiting_and_says_why(resting: Tuning, stuck: bool, told: str) -> None:
    async def no_sleep() -> None:
        raise OSError("no room")

    resting.engine.stuck = stuck
    resting.drain_timeout_s = 0.0 if stuck else 30.0
    resting.begin_rest(no_sleep, "ada")
    await resting.settled()
    assert (resting.phase, resting.reason, resting.engine.held) == ("idle", told, False)


async def test_lm_that_ended_in_its_sleep_keeps_nobody_waiting(resting: Tuning) -> None:
    async def gone() -> None:
        raise EngineNotReady("engine.failed", reason="killed")

    resting.begin_rest(lambda: asyncio.sleep(0), "ada")
    await resting.settled()
    assert (resting.phase, resting.engine.held) == ("asleep", True)
    await resting.end_rest(gone, "ada")
    assert (resting.phase, resting.engine.held) == ("idle", False)


async def test_two_who_wake_the_lm_at_once_wake_it_once_and_both_are_told(resting: Tuning) -> None:
    woken, awake = [], asyncio.Event()

    async def wake() -> None:
        woken.append(True)
        await awake.wait()

    resting.begin_rest(lambda: asyncio.sleep(0), "ada")
    await resting.settled()
    both = [asyncio.create_task(resting.end_rest(wake, who)) for who in ("ada", "bob")]
    await asyncio.sleep(0)
    both[0].cancel()
    await asyncio.wait(both[:1])
    assert resting.phase == "asleep"
    awake.set()
    await both[1]
    assert (len(woken), resting.phase, resting.engine.held) == (1, "idle", False)
    with pytest.raises(InvalidRequest):
        await resting.end_rest(wake, "ada")
