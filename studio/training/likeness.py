"""How like its prompt a flow sounds, without the speech LM: minutes on two cores, for choosing among trained flows.

    python -m studio.training.likeness assets/voice [FLOW.pt ...]

Each prompt of the evaluation that was never trained on voices the speech tokens of three other speakers' clips. Judged
as `studio.evaluate` judges; its figures stand for the whole path, these do not.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
import torch
from torch import Tensor

from studio.evaluate.similarity import JUDGE_RATE_HZ, VoiceJudge
from studio.evaluate.texts import Prompt, load_prompts
from studio.models.flow import Flow
from studio.models.hift import load_hift
from studio.models.prompt.encoder import OnnxPromptEncoder
from studio.models.prompt.features import resample
from studio.models.weights import read_tensors
from studio.speech import SAMPLE_RATE_HZ, VoicePrompt
from studio.training.stepping import load_weights

SOURCES = 3
Speak = Callable[[VoicePrompt, Tensor], Tensor]
"""A prompt and speech tokens [T] to mel [80, F]."""


class Bench:
    """Prompts, the tokens that they voice, and the judge."""

    def __init__(self, folder: Path) -> None:
        prompts = [prompt for prompt in load_prompts() if prompt.language == "en"]
        encoder = OnnxPromptEncoder(folder)
        self._hift = load_hift(read_tensors(folder / "hift.safetensors")).eval()
        self._judge = VoiceJudge()
        self._targets = [prompt for prompt in prompts if prompt.group != "seen"]
        self._voices = {prompt.id: encoder.encode(*_read(prompt), prompt.transcript) for prompt in prompts}
        self._tokens = [self._voices[p.id].speech_tokens for p in prompts if p.group == "seen"][:SOURCES]
        self._own = {prompt.id: self._embed(*_read(prompt)) for prompt in self._targets}

    def _embed(self, samples: np.ndarray, rate_hz: int = SAMPLE_RATE_HZ) -> np.ndarray:
        sound = torch.as_tensor(samples)
        return self._judge.embed(
            samples if rate_hz == JUDGE_RATE_HZ else resample(sound, rate_hz, JUDGE_RATE_HZ).numpy()
        )

    @torch.inference_mode()
    def figures(self, speak: Speak) -> dict[str, float]:
        """Mean similarity to the prompt, and how often the own one of the ten synthetic ones is nearest."""
        similar: dict[str, list[float]] = {"unseen_synthetic": [], "real": []}
        margins = []
        for target in self._targets:
            for tokens in self._tokens:
                mel = speak(self._voices[target.id], torch.as_tensor(tokens))
                heard = self._judge_one(mel)
                similar[target.group].append(heard[target.id])
                if target.group != "real":
                    margins.append(heard[target.id] - max(heard[p.id] for p in self._others(target)))
        return {name: float(np.mean(found)) for name, found in similar.items()} | {
            "right_of_ten": float(np.mean([margin > 0 for margin in margins])),
            "margin": float(np.mean(margins)),
        }

    def _others(self, target: Prompt) -> list[Prompt]:
        return [p for p in self._targets if p.group != "real" and p.id != target.id]

    def _judge_one(self, mel: Tensor) -> dict[str, float]:
        embedding = self._embed(self._hift(mel[None]).flatten().numpy())
        return {name: float(embedding @ own) for name, own in self._own.items()}


def _read(prompt: Prompt) -> tuple[np.ndarray, int]:
    samples, rate_hz = soundfile.read(prompt.path, dtype="float32")
    return samples, rate_hz


def voice_with(flow: Flow) -> Speak:
    def speak(voice: VoicePrompt, tokens: Tensor) -> Tensor:
        prompt = [torch.as_tensor(part) for part in (voice.speech_tokens, voice.mel, voice.speaker_embedding)]
        return flow.synthesize(tokens, *prompt)

    return speak


def copied(voice: VoicePrompt, tokens: Tensor) -> Tensor:
    """The prompt's own mel: what the vocoder allows at best."""
    return torch.as_tensor(voice.mel).T


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare flows by likeness.")
    parser.add_argument("folder", type=Path, help="checkpoint, whose flow comes first")
    parser.add_argument("flows", type=Path, nargs="*", help="flows as their trainer writes them")
    args = parser.parse_args()
    bench = Bench(args.folder)
    flows = {str(args.folder): Flow.from_file(args.folder / "flow.safetensors")}
    flows |= {str(path): Flow.from_tensors(load_weights(path)[0]) for path in args.flows}
    ways: dict[str, Speak] = {"copied": copied} | {name: voice_with(flow) for name, flow in flows.items()}
    for name, speak in ways.items():
        row = " ".join(f"{key} {value:.3f}" for key, value in bench.figures(speak).items())
        print(f"{name}: {row}", flush=True)


if __name__ == "__main__":
    main()
