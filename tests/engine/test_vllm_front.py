"""What vLLM makes of what it is told: its front of an interval, its attention of queries. No engine, no model."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import get_args

import pytest

from studio.backends.vllm_compat import (
    EngineOptions,
    LmGraphs,
    engine_arguments,
    graph_arguments,
    stream_interval,
)


@pytest.mark.parametrize(
    ("first_block", "length", "groups"),
    [
        (22, 1, [[0]]),
        (22, 5, [[0], [1, 2, 3, 4]]),
        (22, 14, [[0], [1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12], [13]]),
        (13, 18, [[0], [1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12, 13, 14, 15], [16, 17]]),
    ],
)
def test_a_gpu_s_groups_of_tokens_lose_none_and_their_end_does_not_wait(first_block, length, groups):
    """vLLM's own front with the interval that a GPU has; a second request leaves within its second group."""
    # Importing vLLM takes a while; whoever only collects the tests need not wait for it.
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
    from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector

    front = OutputProcessor(None, log_stats=False, stream_interval=stream_interval(first_block))
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


@pytest.mark.parametrize(
    "options",
    [
        EngineOptions("cpu"),
        *(EngineOptions("cuda", lm_graphs=graphs, lm_engines=n) for graphs in get_args(LmGraphs) for n in (1, 2)),
    ],
)
def test_every_argument_is_one_of_this_vllm(options):
    from vllm.config import AttentionConfig, CompilationConfig, CUDAGraphMode
    from vllm.engine.arg_utils import AsyncEngineArgs

    def names(of):
        return {field.name for field in fields(of)}

    given = engine_arguments(Path("/models/converted"), options)
    assert given.keys() <= names(AsyncEngineArgs)
    assert given.get("attention_config", {}).keys() <= names(AttentionConfig)
    graphs = given.get("compilation_config", {})
    assert graphs.keys() <= names(CompilationConfig)
    assert graphs.get("cudagraph_mode", "FULL") in CUDAGraphMode.__members__


def test_flash_attention_is_never_told_of_one_query_where_it_would_lay_its_plan_out_otherwise():
    from studio.backends.vllm_graphs import TOLD, keep_causal

    told: list[tuple[str, tuple[object, ...], dict[str, object]]] = []
    module = ModuleType("flash_attn")
    for name in TOLD:
        setattr(module, name, lambda *args, name=name, **rest: told.append((name, args, rest)))
    keep_causal(module)
    module.get_scheduler_metadata(batch_size=3, max_seqlen_q=1)
    module.flash_attn_varlen_func("q", max_seqlen_q=1, causal=True)
    module.flash_attn_varlen_func(max_seqlen_q=150)
    assert told == [
        ("get_scheduler_metadata", (), {"batch_size": 3, "max_seqlen_q": 2}),
        ("flash_attn_varlen_func", ("q",), {"max_seqlen_q": 2, "causal": True}),
        ("flash_attn_varlen_func", (), {"max_seqlen_q": 150}),
    ]


@pytest.mark.parametrize(
    ("graphs", "support", "of_prompts"),
    [
        ("decode", "ALWAYS", ("NONE", 213)),
        ("pieces", "ALWAYS", ("PIECEWISE", 224)),
        ("pieces", "UNIFORM_BATCH", ("PIECEWISE", 224)),
        ("all", "ALWAYS", ("FULL", 224)),
        ("all", "UNIFORM_BATCH", ("NONE", 213)),
    ],
)
def test_steps_are_dispatched_to_graphs_as_the_setting_says(monkeypatch, graphs, support, of_prompts):
    """support: of the attention; FlashAttention 3 has graphs ALWAYS, others of steps that are all alike."""
    monkeypatch.setenv("VLLM_USE_BREAKABLE_CUDAGRAPH", str(int(graphs == "pieces")))
    from vllm.config import CompilationConfig
    from vllm.v1.attention.backend import AttentionCGSupport
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

    config = CompilationConfig(**graph_arguments(EngineOptions("cuda", lm_graphs=graphs))["compilation_config"])
    config.set_splitting_ops_for_v1("", 1)
    config.max_cudagraph_capture_size = config.cudagraph_capture_sizes[-1]
    scheduler = SimpleNamespace(max_num_seqs=128)
    about = SimpleNamespace(
        compilation_config=config, num_speculative_tokens=0, lora_config=None, scheduler_config=scheduler
    )
    dispatcher = CudagraphDispatcher(about)
    mode = config.resolve_cudagraph_mode_and_sizes(AttentionCGSupport[support], "attention", 1)
    dispatcher.initialize_cudagraph_keys(mode, 1)

    def dispatched(tokens, alike):
        mode, graph = dispatcher.dispatch(tokens, alike)
        return mode.name, graph.num_tokens

    assert [dispatched(n, True) for n in (1, 8, 12)] == [("FULL", 1), ("FULL", 8), ("FULL", 16)]
    assert dispatched(213, False) == of_prompts
