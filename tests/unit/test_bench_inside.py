"""The clocks of the bench inside the server's process, and what is made of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest

from studio.bench.first_bytes import FirstBytes, Message, Receive, Send, Sent
from studio.bench.growth import growth_row, longest_s
from studio.bench.inside import arguments, loads_of, ttfa
from studio.bench.load import PATH, Line, closed_loop, listened
from studio.bench.playback import Arrival
from studio.bench.rows import Out
from studio.bench.waterfall import STAGES, stages_of, waterfall
from studio.engine.stats import FirstStep, RequestSummary
from studio.speech import Float32

SUMMARY = RequestSummary(
    "a", "voice", "me", 90, 1, 190, 7.6, queue_s=0.01, ttfa_s=0.3, rtf=0.1, rate=10.0, ended_s=51.0, reason="stop",
    first_token_s=0.03, whole_s=1.0,
    first_step=FirstStep(0.1, 0.12, 0.22, rows=4, flow_s=0.06, vocoder_s=0.02, worker_s=0.085),
)  # fmt: skip


def test_stages_add_up_to_the_time_to_the_first_bytes() -> None:
    sent = Sent("a", accepted_s=49.98, first_bytes_s=50.25)
    stages = stages_of(sent, SUMMARY)
    assert stages is not None
    named = dict(zip(STAGES, stages, strict=True))
    assert sum(stages) == pytest.approx(sent.ttfa_s) == pytest.approx(0.27)
    assert named["http and text"] == pytest.approx(0.02) and named["queue"] == pytest.approx(0.01)
    assert (named["flow"], named["vocoder"]) == (0.06, 0.02)
    assert named["step on the host"] == pytest.approx(0.005) and named["messages"] == pytest.approx(0.015)
    assert named["transport"] == pytest.approx(0.03)


def test_waterfall_counts_requests_that_both_sides_know_and_that_came_the_usual_way() -> None:
    sents = [Sent("a", 49.98, 50.25), Sent("b", 0.0, 1.0), Sent("c", 0.0, 1.0)]
    found = waterfall(sents, [SUMMARY, replace(SUMMARY, request_id="b", first_step=None)])
    assert found["requests"] == 1 and found["total"] == {"mean_ms": 270.0, "p50_ms": 270.0, "p95_ms": 270.0}
    assert waterfall(sents[1:], [SUMMARY]) == {"requests": 0}


def test_growth_compares_both_ends_without_the_last_hop_and_tells_what_reading_the_keys_costs() -> None:
    hops_s = [0.02] * 5 + [0.025] * 10 + [0.03] * 5 + [0.9]
    row = growth_row(hops_s, streams=2, prompt_frames=250, frame_bytes=2_000_000)
    assert (row["first_ms"], row["last_ms"], row["last_over_first"]) == (20.0, 30.0, 1.5)
    # the third block lies behind the prompt and two others of 50 frames, with the first one not timed
    assert row["read_first_ms"] == pytest.approx(1000 * 2 * (250 + 150) * 2e6 / 4.3e12, abs=0.001)
    assert growth_row(hops_s[:5], 2, 250, 2_000_000) == {"streams": 2, "hops": 5}


def test_speech_of_the_growth_curve_is_as_long_as_the_pool_holds() -> None:
    assert longest_s(100 * 2**30, 2_293_760, streams=32, most_s=60) == 26
    assert longest_s(100 * 2**30, 2_293_760, streams=1, most_s=60) == longest_s(0, 1, 32, 60) == 60


async def app(scope: Message, receive: Receive, send: Send) -> None:
    status = 200 if scope["path"] == PATH else 404
    await send({"type": "http.response.start", "status": status, "headers": [(b"x-request-id", b"a")]})
    for body in (b"", b"sound", b"more", b""):
        await send({"type": "http.response.body", "body": body, "more_body": bool(body)})


async def test_first_bytes_of_speech_are_noted_once_and_nothing_else_is() -> None:
    clock, told = FirstBytes(app), []

    async def send(message: Message) -> None:
        told.append(message)

    async def receive() -> Message:
        return {}

    for path in ("/health", PATH):
        await clock({"type": "http", "path": path}, receive, send)
    (sent,) = clock.sent
    assert sent.request_id == "a" and sent.ttfa_s >= 0 and len(told) == 10
    assert ttfa(clock.sent)["ttfa_p50_ms"] == round(1000 * sent.ttfa_s, 1)


async def test_first_loud_sample_is_told_by_its_place_in_the_sound() -> None:
    async def sound() -> AsyncIterator[Float32]:
        yield np.full(2400, 0.003, np.float32)
        yield np.concatenate([np.full(1200, -0.003), np.full(10, -0.004)]).astype(np.float32)

    play = await listened(sound(), 0.0, 0.0)
    assert play.loud_s is not None and play.loud_s - play.arrivals[0].at_s == pytest.approx(0.15, abs=0.001)


async def test_load_that_takes_too_long_is_cut_off_and_keeps_what_was_heard() -> None:
    from studio.bench.figures import Play

    async def speak(line: Line) -> Play:
        if line.seed > 1:
            await asyncio.Event().wait()
        return Play((Arrival(0.1, 1.0),), 0.2, 0.0)

    load = await closed_loop(speak, [Line("x", "v", seed) for seed in (1, 2, 3)], 2, limit_s=0.05)
    assert len(load.plays) == 1 and load.failures == ("cut off after 0.05 s",)


def test_loads_are_closed_loops_and_a_burst_of_one_request_each(capsys: pytest.CaptureFixture[str]) -> None:
    args, flags = arguments(["--streams", "1,8", "--burst", "16", "--device", "cuda"])
    assert loads_of(args) == [("closed loop", 1, 20), ("closed loop", 8, 24), ("burst", 16, 16)]
    assert flags == ["--device", "cuda"]
    out = Out(None, {})
    out.add({"streams": 1})
    assert out.rows == [{"streams": 1}] and capsys.readouterr().out == '{"streams": 1}\n'
