"""HiFT vocoder: mel frames to samples, in one go, for training, and as an exact stream."""

from collections.abc import Mapping

from torch import Tensor

from studio.models.hift.causal import CausalHift
from studio.models.hift.checkpoint import canonical_names
from studio.models.hift.config import HiftConfig
from studio.models.hift.generator import Hift

__all__ = ["CausalHift", "Hift", "HiftConfig", "load_hift"]

_FIRST_OF_F0 = "f0_predictor.condnet.0.parametrizations.weight.original1"


def load_hift(state: Mapping[str, Tensor], source: str = "hift") -> Hift | CausalHift:
    """The vocoder of either version that a checkpoint's tensors describe. Raises WeightsError if they do not fit."""
    first = canonical_names(state).get(_FIRST_OF_F0)
    is_third = first is not None and first.shape[-1] == 4  # version 3 looks ahead in this layer alone
    return (CausalHift if is_third else Hift).from_state(state, source)
