"""A whole chunked session as upstream makes it (04_stream_session), through the compatibility switch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from studio.models.upstream import Hop, UpstreamStream, stretched, vocode
from studio.parity.compare import Line, compare
from studio.parity.fixtures import Fixtures
from studio.parity.flow import load_flow
from studio.parity.vocoder import load_hift

SPEED = 1.25


@torch.inference_mode()
def run_session(fixtures: Fixtures, name: str) -> Iterator[Line]:
    """04_stream_session: every chunk of two sessions that share a hop, and whole utterances at two speeds."""
    size, given = fixtures.size_of(name), fixtures.inputs(name)
    flow, hift = load_flow(fixtures, size), load_hift(fixtures, size)
    prompt = (given["prompt_token"], given["prompt_feat"], given["embedding"])

    def silent(f0: Tensor) -> Tensor:
        return f0.new_zeros(1, f0.shape[1] * hift.config.samples_per_frame)

    hop = Hop()
    got: dict[str, Any] = {}
    for number, session in enumerate(("out_chunk_", "out_second_session_")):
        chunks = list(UpstreamStream(flow, hift, hop, prompt, silent).push(given["token"], final=True))
        got |= {
            f"{session}token_offset": [chunk.offset for chunk in chunks],
            f"{session}token_len": [chunk.tokens for chunk in chunks],
        }
        if number == 0:
            got["out_chunk_finalize"] = [int(chunk.final) for chunk in chunks]
            got["out_chunk_flow_streaming"] = [int(not chunk.final) for chunk in chunks]
            got["out_chunk_hift_in_frames"] = [chunk.frames for chunk in chunks]
            for n, chunk in enumerate(chunks):
                for part in ("mel", "f0", "source", "speech"):
                    got[f"out_chunk_{part}_{n}"] = getattr(chunk, part)
    mel = flow.synthesize(given["token"], *prompt, streaming=False)
    faster = stretched(mel, SPEED)
    f0, _, speech = vocode(hift, mel, silent)
    got |= {"out_offline_mel": mel, "out_offline_f0": f0, "out_offline_speech": speech}
    got |= {"out_speed125_mel": faster, "out_speed125_speech": vocode(hift, faster, silent)[2]}
    return compare(fixtures, name, got)
