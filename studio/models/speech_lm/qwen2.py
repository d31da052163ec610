"""The speech LM in plain PyTorch: a Qwen2 stack with the speech embedding and head around it.

Used for training and to hold the mini fixtures, where vLLM's attention refuses the head size; the studio serves the
same weights through vLLM (`model.py`). Module names give the official key names of llm.pt.

Axes: B rows, T positions, H hidden, N heads, D head size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from studio.models.speech_lm.layout import CONTROL_IDS, END_IDS

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(q [B, N, T, D], k and v [B, KV, S, D]) -> [B, N, T, D]; decides what sees what."""


@dataclass(frozen=True, slots=True)
class SpeechLmSizes:
    """speech_codes: S; text_vocab: rows of the text embedding."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    text_vocab: int
    speech_codes: int = 6561
    rope_theta: float = 1e4
    norm_eps: float = 1e-6

    @property
    def head_size(self) -> int:
        """D, width of one head."""
        return self.hidden // self.heads

    def qwen_config(self) -> dict[str, object]:
        """The config.json of the tokenizer folder, as Qwen2 names it."""
        return {
            "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": self.text_vocab,
            "hidden_size": self.hidden, "intermediate_size": self.ffn, "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads, "hidden_act": "silu",
            "max_position_embeddings": 4096, "rms_norm_eps": self.norm_eps, "rope_theta": self.rope_theta,
            "tie_word_embeddings": True, "use_sliding_window": False, "attention_dropout": 0.0,
            "initializer_range": 0.02, "torch_dtype": "float16",
        }  # fmt: skip


def sizes_from_config(config: dict, speech_codes: int) -> SpeechLmSizes:
    """Sizes as a Qwen2 config.json gives them."""
    return SpeechLmSizes(
        hidden=config["hidden_size"], layers=config["num_hidden_layers"], heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"], ffn=config["intermediate_size"], text_vocab=config["vocab_size"],
        speech_codes=speech_codes, rope_theta=config["rope_theta"], norm_eps=config["rms_norm_eps"],
    )  # fmt: skip


class RmsNorm(nn.Module):
    """Each position by its root mean square, in float32 whatever the model's type."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., H] -> [..., H]."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * self.weight.float()).to(x.dtype)


class Attention(nn.Module):
    """Projections of a layer; who sees whom is up to `attend`."""

    def __init__(self, s: SpeechLmSizes):
        super().__init__()
        self.sizes = s
        self.q_proj = nn.Linear(s.hidden, s.heads * s.head_size)
        self.k_proj = nn.Linear(s.hidden, s.kv_heads * s.head_size)
        self.v_proj = nn.Linear(s.hidden, s.kv_heads * s.head_size)
        self.o_proj = nn.Linear(s.heads * s.head_size, s.hidden, bias=False)

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor], attend: Attend, cache: LayerCache | None
    ) -> Tensor:
        """x: [B, T, H]; rope: cos and sin, [B, 1, T, D] each -> [B, T, H]; extends the cache."""
        b, t, _ = x.shape
        q, k, v = (
            proj(x).view(b, t, -1, self.sizes.head_size).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotate(q, *rope), rotate(k, *rope)
        if cache is not None:
            k, v = cache.extend(k, v)
        return self.o_proj(attend(q, k, v).transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    """SwiGLU without biases."""

    def __init__(self, s: SpeechLmSizes):
        super().__init__()
        self.gate_proj = nn.Linear(s.hidden, s.ffn, bias=False)
        self.up_proj = nn.Linear(s.hidden, s.ffn, bias=False)
        self.down_proj = nn.Linear(s.ffn, s.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, H] -> [B, T, H]."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Pre-norm attention and SwiGLU, each added to its input."""

    def __init__(self, s: SpeechLmSizes):
        super().__init__()
        self.input_layernorm = RmsNorm(s.hidden, s.norm_eps)
        self.self_attn = Attention(s)
        self.post_attention_layernorm = RmsNorm(s.hidden, s.norm_eps)
        self.mlp = Mlp(s)

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor], attend: Attend, cache: LayerCache | None, dropout: float
    ) -> Tensor:
        """[B, T, H] -> [B, T, H]; arguments as `Attention.forward` has them."""
        heard = self.self_attn(self.input_layernorm(x), rope, attend, cache)
        x = x + F.dropout(heard, dropout, self.training)
        return x + F.dropout(self.mlp(self.post_attention_layernorm(x)), dropout, self.training)


class Stack(nn.Module):
    """Qwen2 without its head; `embed_tokens` holds the text ids only."""

    def __init__(self, s: SpeechLmSizes):
        super().__init__()
        self.embed_tokens = nn.Embedding(s.text_vocab, s.hidden)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.norm = RmsNorm(s.hidden, s.norm_eps)


class _Holder(nn.Module):
    """Adds one level to the key names, as the official class nesting does."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model


class LayerCache:
    """Keys and values of one layer in buffers made once: [B, KV, capacity, D]; `length` positions are filled."""

    def __init__(self, rows: int, s: SpeechLmSizes, capacity: int, like: Tensor):
        shape = (rows, s.kv_heads, capacity, s.head_size)
        self.keys, self.values = like.new_zeros(shape), like.new_zeros(shape)
        self.length = 0

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append k and v, [B, KV, T, D]; gives all that is filled now, [B, KV, length, D], as views."""
        end = self.length + k.shape[2]
        self.keys[:, :, self.length : end], self.values[:, :, self.length : end] = k, v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class SpeechLm(nn.Module):
    """Text ids and speech tokens to scores over the S speech codes and the three end ids."""

    def __init__(self, sizes: SpeechLmSizes):
        super().__init__()
        self.sizes = sizes
        self.llm = _Holder(_Holder(Stack(sizes)))
        self.llm_embedding = nn.Embedding(CONTROL_IDS, sizes.hidden)
        self.speech_embedding = nn.Embedding(sizes.speech_codes + END_IDS, sizes.hidden)
        self.llm_decoder = nn.Linear(sizes.hidden, sizes.speech_codes + END_IDS)

    @property
    def stack(self) -> Stack:
        """The Qwen2 part, three names deep in the official file."""
        return self.llm.model.model

    def embedding_table(self) -> Tensor:
        """The merged vocabulary (layout.py): speech ids, sos and task, text ids: [S + 5 + text_vocab, H]."""
        return torch.cat(
            [self.speech_embedding.weight, self.llm_embedding.weight, self.stack.embed_tokens.weight]
        )

    def forward(
        self, ids: Tensor, positions: Tensor, attend: Attend, caches: list[LayerCache] | None = None,
        dropout: float = 0.0,
    ) -> Tensor:  # fmt: skip
        """ids of the merged vocabulary and positions, int [B, T] -> hidden states after the last norm [B, T, H]."""
        x = F.embedding(ids, self.embedding_table())
        x = F.dropout(x, dropout, self.training)
        rope = rope_table(positions, self.sizes, x.dtype)
        for i, layer in enumerate(self.stack.layers):
            x = layer(x, rope, attend, caches[i] if caches else None, dropout)
        return self.stack.norm(x)

    def scores(self, hidden: Tensor) -> Tensor:
        """[..., H] -> [..., S + 3], before the softmax."""
        return self.llm_decoder(hidden)

    def new_caches(self, rows: int, capacity: int) -> list[LayerCache]:
        """An empty cache for each layer, for so many rows and positions."""
        like = self.stack.norm.weight
        return [LayerCache(rows, self.sizes, capacity, like) for _ in self.stack.layers]

    def official_tensors(self) -> dict[str, Tensor]:
        """The tensors of llm.pt by their official names (the tied text head left out)."""
        return dict(self.state_dict())

    def load_official(self, tensors: dict[str, Tensor], *, assign: bool = False) -> None:
        """Raises: RuntimeError naming what does not fit; the tied text head is optional and not read.

        assign: the given tensors become the model's, so that one made on the meta device needs no memory twice.
        """
        named = {k: v for k, v in tensors.items() if k != "llm.model.lm_head.weight"}
        self.load_state_dict(named, assign=assign)


def rope_table(positions: Tensor, s: SpeechLmSizes, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of each position, [B, 1, T, D]; halves repeated, as Qwen2 rotates halves and not pairs."""
    exponent = torch.arange(0, s.head_size, 2, device=positions.device, dtype=torch.float32) / s.head_size
    angles = positions[:, None, :, None].float() * torch.exp(-math.log(s.rope_theta) * exponent)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x: [B, N, T, D] turned by its positions, its first and second halves as pairs."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def causal_attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Plain attention: each new position sees everything cached and the new ones up to itself."""
    if q.shape[2] == 1:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    if q.shape[2] == k.shape[2]:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(k.shape[2] - q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def masked_attend(mask: Tensor) -> Attend:
    """Attention under a mask bool [B, 1, T, S], true where seen."""
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
