"""Where the time to the first sound went, stage by stage, over the requests of a load. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from studio.bench.figures import percentile
from studio.bench.first_bytes import Sent
from studio.engine.stats import RequestSummary

STAGES = (
    "http and text", "queue", "first token", "further tokens", "wait for token2wav", "flow", "vocoder",
    "step on the host", "messages", "transport",
)  # fmt: skip
"""In order; they add up to the time from the request's arrival to its first bytes. "first token": the prompt is read.
"step on the host": the rest of a step in the worker: planning, copies, checks. "messages": between the processes."""


def stages_of(sent: Sent, summary: RequestSummary) -> tuple[float, ...] | None:
    """Seconds of each of `STAGES`; None for a request whose sound did not come the usual way."""
    step = summary.first_step
    if step is None or summary.first_token_s is None:
        return None
    came_s = summary.ended_s - summary.whole_s
    told = (0.0, summary.queue_s, summary.first_token_s, step.ready_s, step.began_s)
    until_step = [b - a for a, b in pairwise([sent.accepted_s, *(came_s + at_s for at_s in told)])]
    computed_s = step.flow_s + step.vocoder_s
    host_s = max(0.0, step.worker_s - computed_s)
    messages_s = step.ended_s - step.began_s - computed_s - host_s
    after_s = sent.first_bytes_s - came_s - step.ended_s
    return (*until_step, step.flow_s, step.vocoder_s, host_s, messages_s, after_s)


def waterfall(sents: Iterable[Sent], summaries: Iterable[RequestSummary]) -> dict[str, object]:
    """Mean, median and 95th percentile of each stage in ms, over requests that both name; the means add up."""
    by_id = {summary.request_id: summary for summary in summaries}
    found = [stages_of(sent, by_id[sent.request_id]) for sent in sents if sent.request_id in by_id]
    rows = [stages for stages in found if stages is not None]
    if not rows:
        return {"requests": 0}
    columns = dict(zip(STAGES, zip(*rows, strict=True), strict=True))
    return {
        "requests": len(rows),
        "stages": {name: _figures(values) for name, values in columns.items()},
        "total": _figures([sum(stages) for stages in rows]),
    }


def _figures(values: Sequence[float]) -> dict[str, float]:
    ms = [1000 * value for value in values]
    return {
        "mean_ms": round(sum(ms) / len(ms), 2), "p50_ms": round(percentile(ms, 0.5), 2),
        "p95_ms": round(percentile(ms, 0.95), 2),
    }  # fmt: skip
