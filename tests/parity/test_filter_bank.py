"""The speaker encoder's features without torch are those with it."""

import numpy as np
import torch

from studio.audio import filter_bank
from studio.models.prompt import features
from tests.faulty_clips import clean


def test_numpy_and_torch_give_the_same_features() -> None:
    samples = clean("flite_rms")[0]  # of 16 kHz
    ours, theirs = filter_bank.speaker_features(samples), features.speaker_features(torch.from_numpy(samples)).numpy()
    assert ours.shape == theirs.shape and ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, atol=2e-3)
