"""What Prometheus reads is what the engine measured, and nothing undeclared comes out."""

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from studio.engine.stats import EngineState, EngineStats, Histogram
from studio.engine.worker import WorkerState
from studio.metrics import names
from studio.metrics.exporter import exposition, joined, values
from studio.protocols import LmStats, Token2WavStats


def snapshot() -> EngineStats:
    seconds = Histogram((0.1, 1.0))
    for value in (0.05, 0.5, 0.5, 7.0):
        seconds.observe(value)
    shot = seconds.snapshot()
    state = EngineState(True, False, False, "stage.ready", 1.0, 0.0, (WorkerState("lm", restarts=2),), 3, 4)
    return EngineStats(
        state,
        {"stop": 5, "aborted": 1},
        shot,
        shot,
        shot,
        shot,
        shot,
        shot,
        shot,
        12.5,
        6,
        1.5,
        (),
        2,
        LmStats(0.25, 10),
        Token2WavStats(rows_open=2),
    )


def test_every_declared_metric_is_exported_and_no_other() -> None:
    assert set(values(snapshot())) == set(names.ALL)
    families = {f.name for f in text_string_to_metric_families(exposition({"m": snapshot()}))}
    assert families == {m.name.removesuffix("_total") for m in names.ALL}


def test_histograms_are_cumulative_with_their_sum() -> None:
    ttfa = next(
        f
        for f in text_string_to_metric_families(exposition({"m": snapshot()}))
        if f.name == names.TTFA_SECONDS.name
    )
    found = {(s.name, s.labels.get("le")): s.value for s in ttfa.samples}
    assert found[(names.TTFA_SECONDS.name + "_bucket", "0.1")] == 1
    assert found[(names.TTFA_SECONDS.name + "_bucket", "1")] == 3
    assert found[(names.TTFA_SECONDS.name + "_bucket", "+Inf")] == 4
    assert found[(names.TTFA_SECONDS.name + "_sum", None)] == 8.05


def test_metrics_of_a_dead_worker_are_absent_rather_than_zero() -> None:
    text = exposition({"m": replace(snapshot(), lm=None)})
    assert names.KV_CACHE_USAGE.name not in text and names.ROWS_OPEN.name in text


def test_times_of_flow_and_vocoder_that_nobody_told_are_absent_rather_than_zero() -> None:
    untold = Histogram((1.0,)).snapshot()
    text = exposition({"m": replace(snapshot(), flow_s=untold, vocoder_s=untold)})
    assert names.FLOW_SECONDS.name not in text and names.VOCODER_SECONDS.name not in text
    assert names.STEP_SECONDS.name in text


def test_names_follow_the_conventions() -> None:
    for metric in names.ALL:
        assert metric.name.startswith("studio_") and (
            metric.name.endswith("_total") == (metric.kind == "counter")
        )


def test_every_sample_tells_its_model_and_each_family_stands_once() -> None:
    both = exposition({"cv2": snapshot(), 'a "third"': replace(snapshot(), lm=None)})
    samples = [s for f in text_string_to_metric_families(both) for s in f.samples]
    assert {s.labels["model"] for s in samples} == {"cv2", 'a "third"'}
    ready = [s.labels for s in samples if s.name == names.ENGINE_READY.name]
    assert ready == [{"model": "cv2"}, {"model": 'a "third"'}]
    assert [s.labels for s in samples if s.name == names.KV_CACHE_USAGE.name] == [{"model": "cv2"}]
    assert both.count(f"# TYPE {names.TTFA_SECONDS.name} ") == 1


def test_pages_of_two_engines_are_one_page_that_prometheus_reads() -> None:
    page = (
        "# HELP vllm:waiting_total Waiting.\n# TYPE vllm:waiting_total counter\n"
        'vllm:waiting_total{engine="0",model_name="x y"} 3.0\n# TYPE up gauge\nup 1.0\n'
    )
    both = joined({"cv2": page, "cv3": page, "down": ""})
    families = {f.name: f.samples for f in text_string_to_metric_families(both)}
    assert [s.labels["model"] for s in families["vllm:waiting"]] == ["cv2", "cv3"]
    assert families["vllm:waiting"][0].labels == {"model": "cv2", "engine": "0", "model_name": "x y"}
    assert [(s.labels, s.value) for s in families["up"]] == [({"model": "cv2"}, 1.0), ({"model": "cv3"}, 1.0)]
    assert joined({}) == ""
