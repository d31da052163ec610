"""Repetition-aware sampling as one distribution: the law of its two draws in closed form, batched over rows.

The sampler it stands for: draw from the nucleus (top_p, top_k); if that token was spoken in the last few
tokens, its score becomes -inf and one more draw is made over everything else. With p the softmax of all
scores and q the nucleus, renormalised, and R the repeated tokens, a token y is drawn with

    q(y) [y not in R]  +  sum over x in R, x != y, of q(x) p(y) / (1 - p(x))

It does not draw and it knows nothing of vLLM; ras_processor.py puts it there.
Axes: B rows, V head width, K candidates, W window. No value is read back to the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

NO_TOKEN = -1
"""Fills windows that are longer than what was spoken; equal to no token."""


@dataclass(frozen=True, slots=True)
class RasRows:
    """What each row asks for, on the device. All [B, 1], float32 or int64.

    repeats_needed: how often a token must stand in the window to be drawn again (1 in the official sampler).
    candidates: K, the largest top_k of all rows, at least 2; a plain number, so that shapes need no read.
    """

    temperature: torch.Tensor
    top_p: torch.Tensor
    top_k: torch.Tensor
    repeats_needed: torch.Tensor
    candidates: int


def final_log_probs(scores: torch.Tensor, window: torch.Tensor, rows: RasRows) -> torch.Tensor:
    """The law above as log-probabilities; -inf where a token cannot be drawn.

    Args:    scores: float32 [B, V], logits or log-probabilities, -inf where masked, one finite at least;
             window: int64 [B, W], the last spoken tokens, in any order, filled with NO_TOKEN.
    Returns: float32 [B, V]; a softmax of it is the distribution of the next token.
    """
    scores = scores / rows.temperature
    ids = _leading_ids(scores, rows.candidates)  # [B, K]
    leading = scores.gather(1, ids)  # [B, K]
    # Only the likeliest token can have p near 1, where 1 - p(x) loses all its digits; so the sum over all
    # others is made first, and the sum over all from it. For other candidates 1 - p(x) is a half or more.
    log_others = scores.scatter(1, ids[:, :1], float("-inf")).logsumexp(dim=1, keepdim=True)  # [B, 1]
    log_all = torch.logaddexp(log_others, leading[:, :1])  # [B, 1]
    # A row with one token left cannot draw another one: it keeps the repeat rather than dividing by nothing.
    alone = log_others == float("-inf")
    log_others = torch.where(alone, log_all, log_others)

    # The softmax that the official code takes, so that sums which meet top_p are rounded as there.
    p = scores.softmax(dim=1).gather(1, ids)  # [B, K]
    q = _nucleus(p, rows)  # [B, K]
    seen = (ids.unsqueeze(2) == window.unsqueeze(1)).sum(dim=2)  # [B, K]
    repeated = (seen >= rows.repeats_needed) & (q > 0) & ~alone
    moved = q * repeated  # [B, K] mass that goes to a second draw
    first = moved[:, :1].clone()  # [B, 1] the part of it that leaves the likeliest token
    share = moved / (1 - p)
    share[:, 0] = 0
    total = share.sum(dim=1, keepdim=True)  # [B, 1]

    # Outside the candidates the law is the softmax times one factor a row, so it is the scores plus a
    # constant.
    law = scores + torch.logaddexp(total.log() - log_all, first.log() - log_others)  # [B, V]
    second = first * (leading - log_others).exp()
    second[:, 0] = 0  # a repeated token gets nothing of its own second draw
    return law.scatter_(1, ids, (q * ~repeated + (total - share) * p + second).clamp_(min=0).log_())


def _leading_ids(scores: torch.Tensor, k: int) -> torch.Tensor:
    """Ids of the k highest of [B, V] scores, int64 [B, K], falling; equal scores in the order of their ids.

    topk alone leaves the order of equals open, so score and id are packed in one integer that has no equals.
    """
    bits = (scores + 0.0).view(torch.int32)  # + 0.0 makes -0.0 equal to 0.0
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(torch.int64)  # orders as the floats do
    last = scores.shape[1] - 1
    packed = (ordered << 32) | _falling(last, scores.device)
    return last - (packed.topk(min(k, last + 1), dim=1).values & 0xFFFFFFFF)


@lru_cache(maxsize=8)
def _falling(last: int, device: torch.device) -> torch.Tensor:
    return torch.arange(last, -1, -1, device=device)


def _nucleus(p: torch.Tensor, rows: RasRows) -> torch.Tensor:
    """Falling probabilities [B, K] to the candidates' shares: in while the mass before is below top_p."""
    before = p.cumsum(dim=1).roll(1, dims=1)
    before[:, 0] = 0
    rank = torch.arange(p.shape[1], device=p.device)
    kept = p * ((before < rows.top_p) & (rank < rows.top_k))
    return kept / kept.sum(dim=1, keepdim=True)
