"""The flow: fixtures 02 (encoder), 03 (estimator), 04 (whole, start noise)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch

from studio.models.flow import Flow
from studio.models.flow.layers import WholeView, visibility
from studio.models.flow.sizes import BLOCK_FRAMES, LOOKAHEAD_TOKENS
from studio.models.flow.solver import flow_times, start_noise
from studio.parity.compare import Line, compare
from studio.parity.fixtures import Fixtures

OFFICIAL_HEAD_DIM = 64


@lru_cache(maxsize=2)
def load_flow(fixtures: Fixtures, size: str) -> Flow:
    """The folder's flow of a size, on its device. Raises FixtureMissing, WeightsError."""
    head_dim = fixtures.sizes(size).get("flow", {}).get("est_head_dim", OFFICIAL_HEAD_DIM)
    return Flow.from_tensors(fixtures.weights(size, "flow"), head_dim).to(fixtures.device)


@torch.inference_mode()
def run_encoder(fixtures: Fixtures, name: str) -> Iterator[Line]:
    """02: tokens to embeddings, encoder output and mu; whole and cut before the look-ahead, with and without mask."""
    flow = load_flow(fixtures, fixtures.size_of(name))
    embedded = flow.embed_tokens(fixtures.inputs(name)["token"])[None]
    encoded, ahead = embedded[:, :-LOOKAHEAD_TOKENS], embedded[:, -LOOKAHEAD_TOKENS:]
    got = {"out_embedded": embedded[0]}
    for mode, streaming in (("offline", False), ("streaming", True)):
        got[f"out_full_{mode}"] = flow.encoder(embedded, streaming=streaming)[0]
        got[f"out_partial_{mode}"] = flow.encoder(encoded, ahead, streaming=streaming)[0]
        got[f"out_mu_full_{mode}"] = flow.encoder_proj(got[f"out_full_{mode}"])
    return compare(fixtures, name, got)


@torch.inference_mode()
def run_estimator(fixtures: Fixtures, name: str) -> Iterator[Line]:
    """03: one velocity of a padded batch, with and without the streaming mask."""
    estimator, given = load_flow(fixtures, fixtures.size_of(name)).estimator, fixtures.inputs(name)
    frames = given["x"].shape[-1]
    speaker = given["spks"][:, None].expand(-1, frames, -1)
    conditions = torch.cat([given["mu"].mT, speaker, given["cond"].mT], dim=-1)
    times, lengths = estimator.time_features(given["t"]), given["mask"].sum((1, 2)).long()
    got = {}
    for mode, block in (("offline", None), ("streaming", BLOCK_FRAMES)):
        view = WholeView(visibility(frames, lengths, block, conditions.device))
        velocity = estimator(given["x"].mT, conditions, times, view).mT
        got[f"out_{mode}"] = velocity * given["mask"]  # what lies behind a row's end means nothing
    return compare(fixtures, name, got)


@torch.inference_mode()
def run_flow(fixtures: Fixtures, name: str) -> Iterator[Line]:
    """04_flow: a whole solve by each mode and end that the fixture holds."""
    flow, given = load_flow(fixtures, fixtures.size_of(name)), fixtures.inputs(name)
    arguments = (given["token"], given["prompt_token"], given["prompt_feat"], given["embedding"])
    got = {"out_spks": flow.speaker(given["embedding"]), "out_t_span": flow_times()}
    for key in fixtures.arrays(name, "out_").keys() - got.keys():
        mode, _, end = key.removeprefix("out_").partition("_")
        if mode in ("offline", "streaming") and end in ("final", "partial"):
            got[key] = flow.synthesize(*arguments, streaming=mode == "streaming", final=end == "final")
    return compare(fixtures, name, got)


def run_start_noise(fixtures: Fixtures, name: str) -> Iterator[Line]:
    """04_rand_noise: both ends of the fixed start noise, and the mean and deviation of each bin."""
    noise = start_noise().T.double()
    got = {
        "out_head": noise[:, :320],
        "out_tail": noise[:, -8:],
        "out_row_mean": noise.mean(1),
        "out_row_std": noise.std(1),
    }
    return compare(fixtures, name, got)
