"""The engines' snapshots in Prometheus' text form, each labelled with its model. Measures nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from studio.engine.stats import EngineStats, HistogramSnapshot
from studio.metrics import names
from studio.metrics.names import Metric

CONTENT_TYPE = CONTENT_TYPE_LATEST
MODEL = "model"
"""The label that every sample has."""
Value = float | Mapping[str, float] | HistogramSnapshot


def values(stats: EngineStats) -> dict[Metric, Value]:
    """Each metric's present value; what is not known, as of a worker that is down, is left out and not zero."""
    found: dict[Metric, Value] = {
        names.ENGINE_READY: float(stats.state.ready),
        names.REQUESTS_RUNNING: stats.state.running,
        names.REQUESTS_WAITING: stats.state.waiting,
        names.REQUESTS_FINISHED: stats.finished,
        names.REQUESTS_REFUSED: stats.refused,
        names.GIVEN_UP: {str(rung): count for rung, count in stats.given_up.items()},
        names.PLACES: stats.places,
        names.QUEUE_SECONDS: stats.queue_s,
        names.TTFA_SECONDS: stats.ttfa_s,
        names.RTF_RATIO: stats.rtf,
        names.AUDIO_SECONDS: stats.audio_s_total,
        names.UNDERRUNS: stats.underruns,
        names.WORKER_RESTARTS: {worker.name: worker.restarts for worker in stats.state.workers},
        names.STEP_SECONDS: stats.step_s,
        names.BATCH_ROWS: stats.batch_rows,
    }
    if stats.flow_s.count:
        found[names.FLOW_SECONDS] = stats.flow_s
    if stats.vocoder_s.count:
        found[names.VOCODER_SECONDS] = stats.vocoder_s
    if stats.token2wav is not None:
        found[names.ROWS_OPEN] = stats.token2wav.rows_open
        found[names.STATE_BYTES] = stats.token2wav.state_bytes
        found[names.FLOW_PAGES] = stats.token2wav.flow_pages
        found[names.FLOW_PAGES_FREE] = stats.token2wav.flow_pages_free
        found[names.FLOW_PAGES_SHARED] = stats.token2wav.flow_pages_shared
    if (lm := stats.lm) is not None:
        found |= {
            names.KV_CACHE_USAGE: lm.kv_cache_usage_ratio,
            names.KV_CACHE_BLOCKS: lm.kv_cache_blocks,
            names.LM_RUNNING: lm.running,
            names.LM_WAITING: lm.waiting,
            names.PREEMPTIONS: lm.preemptions,
            names.PREFIX_QUERIES: lm.prefix_cache_queries_tokens,
            names.PREFIX_HITS: lm.prefix_cache_hits_tokens,
            names.SPEECH_TOKENS: lm.generated_tokens,
        }
    return found


def family(metric: Metric, found: Mapping[str, Value]) -> Family:
    """One metric of each model in Prometheus' own classes; its histograms are cumulative, ours are not."""
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=[MODEL])
        for model, value in found.items():
            assert isinstance(value, HistogramSnapshot)
            edges = [*(format(bound, "g") for bound in value.bounds), "+Inf"]
            buckets = list(zip(edges, accumulate(value.counts), strict=True))
            histogram.add_metric([model], buckets, value.total)
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    made = kind(metric.name, metric.help, labels=[MODEL, *([metric.label] if metric.label else [])])
    for model, value in found.items():
        assert not isinstance(value, HistogramSnapshot)
        for label, number in value.items() if isinstance(value, Mapping) else [(None, value)]:
            made.add_metric([model, *([label] if label is not None else [])], number)
    return made


def exposition(stats: Mapping[str, EngineStats]) -> str:
    """Our part of GET /metrics, of each model by its name."""
    found = {model: values(one) for model, one in stats.items()}

    class Snapshot(Collector):
        def collect(self) -> Iterator[Family]:
            for metric in names.ALL:
                if having := {model: of[metric] for model, of in found.items() if metric in of}:
                    yield family(metric, having)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Snapshot())
    return generate_latest(registry).decode()


def joined(pages: Mapping[str, str]) -> str:
    """Pages of metrics of several models as one: each sample labelled with its model, each family told once."""
    families: dict[str, tuple[dict[str, None], list[str]]] = {}  # its comments and its samples, in order
    for model, page in pages.items():
        label = f'{MODEL}="{_escaped(model)}"'
        for line in page.splitlines():
            if line.startswith("# "):
                comments, samples = families.setdefault(line.split()[2], ({}, []))
                comments[line] = None
            elif line:
                name, brace, rest = line.partition("{")
                if brace:
                    samples.append(f"{name}{{{label},{rest}")
                else:
                    name, _, value = line.partition(" ")
                    samples.append(f"{name}{{{label}}} {value}")
    return "".join(f"{line}\n" for comments, samples in families.values() for line in (*comments, *samples))


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
