"""HiFT vocoder: mel frames to samples, in one go, for training, and as an exact stream."""

from studio.models.hift.config import HiftConfig
from studio.models.hift.generator import Hift

__all__ = ["Hift", "HiftConfig"]
