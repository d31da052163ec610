"""What a step made, brought from the device to the host by one copy that is waited for once.

It looks at every value on the way; what becomes of a row with a bad one, `torch_rows.py` knows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from studio.models.uploads import waiting_event
from studio.speech import Float32

SAMPLES_BITS = 23
"""The largest step that pinned memory is kept for has 2 ** 22 samples: three minutes."""
BAD_MEL = "the mel is not finite"
BAD_SOUND = "the sound is not finite"


def fetch(
    mels: Mapping[str, Tensor], waves: Mapping[str, Tensor]
) -> tuple[dict[str, Float32], dict[str, str]]:
    """The sound of rows on the host, and what is wrong with those that hold NaN or infinity.

    Args:    mels: [80, F] of each row that has a wave, at least. waves: [S], on the same device as the mels.
    Returns: float32 [S] of each good row, parts of one buffer; the problem of each bad one.
    """
    if not waves:
        return {}, {}
    frames = [mels[row_id] for row_id in waves]
    sound_begins = sum(mel.shape[1] for mel in frames)
    # Joined with time first, as a flow lays them out: one copy for all, where channels first are one for each.
    finite = torch.isfinite(torch.cat([mel.T for mel in frames])).all(1)  # of each mel frame: [F of all rows]
    joined = _on_host(torch.cat([finite.float(), *(wave.float() for wave in waves.values())])).numpy()
    good, heard = joined[:sound_begins], joined[sound_begins:]
    sounds = dict(zip(waves, _parts(heard, [wave.shape[0] for wave in waves.values()]), strict=True))
    if good.all() and _is_finite(heard):
        return sounds, {}
    goods = _parts(good, [mel.shape[1] for mel in frames])
    problems = {
        row_id: BAD_SOUND if mel_is_good.all() else BAD_MEL
        for (row_id, sound), mel_is_good in zip(sounds.items(), goods, strict=True)
        if not mel_is_good.all() or not _is_finite(sound)
    }
    return {row_id: sound for row_id, sound in sounds.items() if row_id not in problems}, problems


def reserve(device: torch.device) -> None:
    """On a GPU take pinned memory for steps of any size, two of each, since to get some takes milliseconds."""
    if device.type == "cuda":
        sizes = [1 << bits for bits in range(16, SAMPLES_BITS)]
        kept = [torch.empty(size, pin_memory=True) for size in sizes for _ in range(2)]
        del kept  # into torch's own store, which gives it out again


def _parts(joined: Float32, lengths: list[int]) -> list[Float32]:
    return [joined[begin:end] for begin, end in pairwise([0, *accumulate(lengths)])]


def _is_finite(sound: Float32) -> bool:
    # Samples lie in [-1, 1], so only NaN and infinity make a sum that is not finite; one pass and no threads of BLAS.
    return math.isfinite(float(sound.sum()))


def _on_host(tensor: Tensor) -> Tensor:
    """A copy in pinned memory, of which torch keeps used pieces; it waits for this copy and what it depends on."""
    if tensor.device.type != "cuda":
        return tensor
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    done = waiting_event()
    done.record(torch.cuda.current_stream(tensor.device))
    done.synchronize()
    return host
