"""What vLLM's front makes of the interval at which a GPU's tokens are told. No engine, no model."""

from __future__ import annotations

import pytest

from studio.backends.vllm_compat import STREAM_INTERVAL


@pytest.mark.parametrize(
    ("length", "groups"),
    [(1, [[0]]), (5, [[0], [1, 2, 3, 4]]), (14, [[0], [1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12], [13]])],
)
def test_a_gpu_s_groups_of_tokens_lose_none_and_their_end_does_not_wait(length, groups):
    """vLLM's own front with the interval that a GPU has; a second request leaves within its second group."""
    # Importing vLLM takes a while; whoever only collects the tests need not wait for it.
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
    from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector

    front = OutputProcessor(None, log_stats=False, stream_interval=STREAM_INTERVAL)
    params = SamplingParams(temperature=0, detokenize=False, output_kind=RequestOutputKind.DELTA)
    queues = {name: RequestOutputCollector(params.output_kind, name) for name in ("stays", "leaves")}
    for name, queue in queues.items():
        ids = {
            "request_id": name,
            "external_req_id": name,
            "prompt_token_ids": [1, 2],
            "data_parallel_rank": None,
        }
        others = {"mm_features": None, "pooling_params": None, "arrival_time": 0.0, "lora_request": None}
        request = EngineCoreRequest(**ids, **others, cache_salt=None, sampling_params=params)
        front.add_request(request, None, None, 0, queue)
    told = []
    for token in range(length):
        if token == 3:
            front.abort_requests(["leaves"], internal=True)
        reason = FinishReason.STOP if token == length - 1 else None
        front.process_outputs([EngineCoreOutput(name, [token], finish_reason=reason) for name in queues])
        if (output := queues["stays"].get_nowait()) is not None:
            told.append(list(output.outputs[0].token_ids))
            assert output.finished == (reason is not None)
    assert told == groups
