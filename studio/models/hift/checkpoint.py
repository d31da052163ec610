"""Names of a HiFT checkpoint brought to one spelling; reads no files."""

from collections.abc import Mapping

import torch
from torch import Tensor

_PREFIX = "generator."
_GAIN, _DIRECTION = "parametrizations.weight.original0", "parametrizations.weight.original1"
# every weight-normed layer of the network; the others hold a plain weight
_NORMED = ("conv_pre", "conv_post", "ups.", "resblocks.", "source_resblocks.", "f0_predictor.condnet.")


def canonical_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename a checkpoint's tensors to the names of `Hift`, in float32.

    Accepts the prefix `generator.` (upstream saves its training module), both spellings of weight
    norm, and folded weights (`X.weight`), whose gain is then the norm of each slice.
    """
    named: dict[str, Tensor] = {}
    for name, value in state.items():
        name, value = name.removeprefix(_PREFIX), value.detach().float()
        layer, _, leaf = name.rpartition(".")
        if leaf == "weight_g":
            named[f"{layer}.{_GAIN}"] = value
        elif leaf == "weight_v":
            named[f"{layer}.{_DIRECTION}"] = value
        elif leaf == "weight" and name.startswith(_NORMED):
            named[f"{layer}.{_GAIN}"] = torch.linalg.vector_norm(value, dim=(1, 2), keepdim=True)
            named[f"{layer}.{_DIRECTION}"] = value
        else:
            named[name] = value
    return named
