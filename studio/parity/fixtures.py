"""A folder of golden fixtures: its arrays and tolerances, and the weights that they were made with. Runs no model.

A fixture is NAME.json (meaning, size, tolerances) and, for arrays, NAME.npz with `in_*` and `out_*`. Weights are made
by the folder's own make_weights.py from keys/SIZE_PART.json, or lie there in the official layout.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from studio.checkpoint import TOKENIZER_FOLDER
from studio.models.weights import read_tensors

QWEN2 = {"rope_theta": 1_000_000.0, "rms_norm_eps": 1e-6}
"""What sizes.json leaves out, as Qwen2 has it."""


class FixtureMissing(Exception):
    """Something that a fixture needs is not in the folder; the message says what."""


@dataclass(frozen=True)
class Fixtures:
    """One folder, and how strictly it is held: slack widens every tolerance.

    least_snr_db: in place of the tolerances, for GPUs and half precision: how far the error lies below an array, in dB.
    """

    folder: Path
    device: str = "cpu"
    slack: float = 1.0
    least_snr_db: float | None = None

    def names(self) -> list[str]:
        """Every fixture, whole or not: 01_frontend, 02_encoder_mini ..."""
        found = (*self.folder.glob("[0-9][0-9]_*.json"), *self.folder.glob("[0-9][0-9]_*.npz"))
        return sorted({file.stem for file in found})

    def meta(self, name: str) -> dict[str, Any]:
        """The description of a fixture. Raises FixtureMissing."""
        return self.json(f"{name}.json")

    def json(self, name: str) -> dict[str, Any]:
        """A JSON object of the folder. Raises FixtureMissing."""
        return dict(json.loads(self.file(name).read_text(encoding="utf-8")))

    def file(self, name: str) -> Path:
        """A file that must be there."""
        if not (self.folder / name).is_file():
            raise FixtureMissing(f"{name} is missing")
        return self.folder / name

    def arrays(self, name: str, prefix: str) -> dict[str, NDArray[Any]]:
        """The arrays whose names begin with a prefix (in_ or out_), by their whole names."""
        with np.load(self.file(f"{name}.npz"), allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files if key.startswith(prefix)}

    def inputs(self, name: str) -> dict[str, Tensor]:
        """The inputs on the device, by their names without in_; half precision widened."""
        return {key.removeprefix("in_"): self.tensor(array) for key, array in self.arrays(name, "in_").items()}

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """An array on the device; half precision widened."""
        tensor = torch.from_numpy(array).to(self.device)
        return tensor.float() if tensor.is_floating_point() else tensor

    def size_of(self, name: str) -> str:
        """mini, full or whatever the folder calls it; the fixture says so, else the end of its name."""
        return str(self.meta(name).get("size") or name.rsplit("_", 1)[-1])

    def sizes(self, size: str) -> dict[str, Any]:
        """Dimensions from sizes.json; {} for a folder without it, since most can be read off the tensors."""
        if not (self.folder / "sizes.json").is_file():
            return {}
        found = self.json("sizes.json")
        return dict(found.get(size, found))

    def lm_config(self, size: str) -> dict[str, Any]:
        """Qwen2's config.json: SIZE_qwen_config.json, the tokenizer folder's, or made from sizes.json."""
        for name in (f"{size}_qwen_config.json", f"{TOKENIZER_FOLDER}/config.json"):
            if (self.folder / name).is_file():
                return self.json(name)
        sizes = self.sizes(size).get("llm")
        if sizes is None:
            raise FixtureMissing(f"neither {size}_qwen_config.json nor llm sizes in sizes.json")
        return QWEN2 | {
            "hidden_size": sizes["hidden"],
            "num_hidden_layers": sizes["layers"],
            "num_attention_heads": sizes["heads"],
            "num_key_value_heads": sizes["kv_heads"],
            "intermediate_size": sizes["inter"],
            "vocab_size": sizes["text_vocab"],
        }

    def weights(self, size: str, part: str) -> dict[str, Tensor]:
        """The tensors of flow, hift or llm by their official names, float32 on the CPU.

        Raises: FixtureMissing if there is neither a key list with its recipe nor a file.
        """
        keys, recipe = self.folder / "keys" / f"{size}_{part}.json", self.folder / "make_weights.py"
        if keys.is_file() and recipe.is_file():
            shapes = json.loads(keys.read_text(encoding="utf-8"))
            return {name: torch.from_numpy(array) for name, array in _load(recipe).fill(shapes).items()}
        for place in (self.folder / size, self.folder):
            for suffix in (".safetensors", ".pt"):
                if (file := place / (part + suffix)).is_file():
                    return read_tensors(file)
        raise FixtureMissing(f"weights: neither keys/{size}_{part}.json with make_weights.py nor {part}.pt")


def _load(recipe: Path) -> Any:
    """The folder's recipe as a module: it is code, so only folders that one trusts are given here."""
    spec = importlib.util.spec_from_file_location("fixture_recipe", recipe)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
