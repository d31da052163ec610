"""Every metric of ours: name and help. Base units; counters end in _total; no request ids as labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """A declared metric; `label` names its one label beside that of the model, if it has one."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    label: str | None = None


ENGINE_READY = Metric("studio_engine_ready", "gauge", "1 when every worker is ready.")
REQUESTS_RUNNING = Metric("studio_requests_running", "gauge", "Requests being voiced.")
REQUESTS_WAITING = Metric("studio_requests_waiting", "gauge", "Requests admitted and waiting for their turn.")
REQUESTS_FINISHED = Metric(
    "studio_requests_finished_total",
    "counter",
    "Requests ended: stop, aborted, or the error's code.",
    "reason",
)
REQUESTS_REFUSED = Metric(
    "studio_requests_refused_total", "counter", "Requests that found no place, neither to run nor to wait."
)
GIVEN_UP = Metric(
    "studio_overload_steps_total",
    "counter",
    "Steps down the ladder of overload: refused, smaller_batch, forget_voices, recompute, smaller_hop, restart.",
    "step",
)
PLACES = Metric(
    "studio_places", "gauge", "Requests that may be voiced at once; fewer for a while after memory was full."
)
QUEUE_SECONDS = Metric(
    "studio_request_queue_seconds", "histogram", "Time from admission to the start of the speech LM."
)
TTFA_SECONDS = Metric(
    "studio_request_ttfa_seconds", "histogram", "Time from admission to the first audio chunk."
)
RTF_RATIO = Metric(
    "studio_request_rtf_ratio", "histogram", "Seconds from LM start to last chunk for a second of audio."
)
AUDIO_SECONDS = Metric("studio_audio_seconds_total", "counter", "Seconds of speech handed to listeners.")
UNDERRUNS = Metric("studio_stream_underruns_total", "counter", "Gaps that players reported.")
WORKER_RESTARTS = Metric(
    "studio_worker_restarts_total", "counter", "Restarts of a worker process after it ended.", "worker"
)
STEP_SECONDS = Metric("studio_token2wav_step_seconds", "histogram", "Time of a token2wav step.")
FLOW_SECONDS = Metric(
    "studio_token2wav_flow_seconds", "histogram", "Time that the flow took of a token2wav step, for all its rows."
)
VOCODER_SECONDS = Metric(
    "studio_token2wav_vocoder_seconds",
    "histogram",
    "Time that the vocoder took of a token2wav step, for all its rows.",
)
BATCH_ROWS = Metric("studio_token2wav_batch_rows", "histogram", "Rows in a token2wav step.")
ROWS_OPEN = Metric("studio_token2wav_rows_open", "gauge", "Rows with state in the token2wav worker.")
STATE_BYTES = Metric(
    "studio_token2wav_state_bytes", "gauge", "Memory of the flow and vocoder state of rows and voices."
)
FLOW_PAGES = Metric(
    "studio_flow_pages",
    "gauge",
    "Pages of the flow's pool, a second of a prompt or of speech each; 0: it keeps none.",
)
FLOW_PAGES_FREE = Metric("studio_flow_pages_free", "gauge", "Pages of the flow's pool that nobody holds.")
FLOW_PAGES_SHARED = Metric(
    "studio_flow_pages_shared", "gauge", "Pages of the flow's pool that more than one holds."
)
KV_CACHE_USAGE = Metric(
    "studio_kv_cache_usage_ratio",
    "gauge",
    "Share of the LM's KV cache blocks held by running requests, 0 to 1.",
)
KV_CACHE_BLOCKS = Metric("studio_kv_cache_blocks", "gauge", "Blocks of the LM's KV cache.")
LM_RUNNING = Metric("studio_lm_running", "gauge", "Segments that the speech LM is generating.")
LM_WAITING = Metric("studio_lm_waiting", "gauge", "Segments waiting inside the speech LM.")
PREEMPTIONS = Metric(
    "studio_preemptions_total", "counter", "Requests that the speech LM put back for lack of blocks."
)
PREFIX_QUERIES = Metric(
    "studio_prefix_cache_queries_tokens_total", "counter", "Prompt tokens looked up in the prefix cache."
)
PREFIX_HITS = Metric(
    "studio_prefix_cache_hits_tokens_total", "counter", "Prompt tokens found in the prefix cache."
)
SPEECH_TOKENS = Metric("studio_speech_tokens_total", "counter", "Speech tokens generated.")

ALL = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
