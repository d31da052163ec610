"""Run the trained prompt encoders over whole corpus parts on the device: speech tokens and speaker embeddings.

    python -m studio.training.encode CACHE OUT --tokenizer OUT/speech_tokenizer.pt --speaker OUT/speaker_encoder.pt

Writes tokens_PART.npz (ids, flat uint16 tokens, lengths) for each part and playing speed, as
`lm_data.read_tokens` reads. Batches are padded, but every clip's tokens are those of the clip alone.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from studio.models.prompt.speaker_encoder import SpeakerEncoder, SpeakerEncoderSize
from studio.models.prompt.speech_tokenizer import FRAMES_PER_TOKEN, SpeechTokenizer, SpeechTokenizerSize
from studio.training import signal
from studio.training.corpus import CorpusPart, load_part, part_names
from studio.training.frame_store import resampled_batches, to_16k
from studio.training.stepping import load_weights

ROWS_TOKENS = 60_000
"""Padded tokens that one pass of the tokenizer may hold; its attention grows with their square per row."""


def load_tokenizer(path: Path, device: str) -> SpeechTokenizer:
    weights, meta = load_weights(path)
    size = SpeechTokenizerSize(
        dim=meta["dim"], blocks=meta["blocks"], code_dims=meta["code_dims"], head_dim=meta["head_dim"]
    )
    tokenizer = SpeechTokenizer(size)
    tokenizer.load_state_dict(weights)
    return tokenizer.to(device).eval()


def load_speaker_encoder(path: Path, device: str) -> SpeakerEncoder:
    weights, meta = load_weights(path)
    encoder = SpeakerEncoder(SpeakerEncoderSize(channels=meta["channels"]))
    encoder.load_state_dict(weights)
    return encoder.to(device).eval()


@torch.no_grad()
def tokenise_rows(tokenizer: SpeechTokenizer, x24: Tensor, lengths: Tensor) -> list[np.ndarray]:
    """24 kHz rows, zero beyond their lengths -> uint16 tokens of each."""
    x16, lengths16 = to_16k(x24, lengths)
    log10_mel = signal.whisper_log10_mel(x16, lengths16)
    frames = lengths16 // 160
    valid = torch.arange(log10_mel.shape[1], device=x24.device)[None] < frames[:, None]
    largest = log10_mel.masked_fill(~valid[..., None], -10.0).amax((1, 2), keepdim=True)
    counts = frames // FRAMES_PER_TOKEN
    most = int(counts.max())
    inside = torch.arange(most, device=x24.device)[None] < counts[:, None]
    wide = inside.repeat_interleave(FRAMES_PER_TOKEN, 1)[..., None]
    features = (signal.whisper_scale(log10_mel[:, : most * FRAMES_PER_TOKEN], largest) * wide).transpose(1, 2)
    each = max(1, ROWS_TOKENS // most)
    ids = torch.cat(
        [
            tokenizer.ids(tokenizer.encode(features[i : i + each], inside[i : i + each]))
            for i in range(0, len(features), each)
        ]
    )
    host = ids.cpu().numpy().astype(np.uint16)
    return [row[:count] for row, count in zip(host, counts.tolist(), strict=True)]


def tokenise_part(
    tokenizer: SpeechTokenizer, part: CorpusPart, device: str, ratio: float = 1.0
) -> list[np.ndarray]:
    """Speech tokens of every clip of a part in its order; one may have one token more than its mel frames allow."""
    tokens: list[np.ndarray] = [np.zeros(0, np.uint16)] * len(part.clips)
    for rows, x24, lengths in resampled_batches(part, ratio, device):
        for row, found in zip(rows.tolist(), tokenise_rows(tokenizer, x24, lengths), strict=True):
            tokens[row] = found
    return tokens


def embed(encoder: SpeakerEncoder, fbank: Tensor) -> Tensor:
    """Filter bank [B, F, 80] -> embedding [B, 192] of unit length; the mean over time plays no part."""
    return F.normalize(encoder(fbank - fbank.mean(1, keepdim=True)), dim=-1)


@torch.no_grad()
def embed_part(encoder: SpeakerEncoder, part: CorpusPart, device: str, longest_s: float = 6.0) -> np.ndarray:
    """Unit-length speaker embeddings of every clip, from its first seconds: float32 [clips, 192]."""
    found = np.zeros((len(part.clips), 192), np.float32)
    for rows, x24, lengths in resampled_batches(part, 1.0, device):
        x16, lengths16 = to_16k(x24, lengths)
        fbank = signal.kaldi_fbank(x16)
        frames = ((lengths16 - 400) // 160 + 1).clamp(max=int(longest_s * 100))
        for count in frames.unique().tolist():  # the pooling wants clips of one length
            same = (frames == count).nonzero()[:, 0]
            clip = fbank[same, :count]
            embedding = embed(encoder, clip)
            found[rows[same.cpu().numpy()]] = embedding.cpu().numpy()
    return found


def write_tokens(path: Path, ids: list[str], tokens: list[np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        path,
        ids=np.array(ids),
        tokens=np.concatenate(tokens).astype(np.uint16),
        lengths=np.array([len(row) for row in tokens], dtype=np.int32),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Tokenise corpus parts.")
    parser.add_argument("cache", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--parts", nargs="*", help="default: all that are decoded")
    parser.add_argument("--ratios", type=float, nargs="*", default=[1.0])
    parser.add_argument("--name", default="tokens")
    parser.add_argument("--device", default="cuda:0")
    args = parser.parse_args()
    began_s = time.monotonic()
    tokenizer = load_tokenizer(args.tokenizer, args.device)
    parts = [load_part(args.cache, name) for name in args.parts or part_names(args.cache)]
    for ratio in args.ratios:
        ids, tokens = [], []
        for part in parts:
            ids += [clip.id for clip in part.clips]
            tokens += tokenise_part(tokenizer, part, args.device, ratio)
        write_tokens(args.out / f"{args.name}_{ratio}.npz", ids, tokens)
        used = len(np.unique(np.concatenate(tokens)))
        print(
            json.dumps(
                {
                    "ratio": ratio,
                    "clips": len(ids),
                    "tokens": sum(map(len, tokens)),
                    "codes": used,
                    "wall_s": round(time.monotonic() - began_s, 1),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
