"""Flow and vocoder put together for a device: on a GPU with pages and graphs, on a CPU with caches that grow.

It reads no files; `torch_token2wav.py` does. What the choices sound like is measured in decision 0020.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from studio.backends.torch_rows import TorchToken2Wav
from studio.errors import SettingsError
from studio.gpu_shares import WORK_BYTES, gpu_pool_bytes
from studio.models.flow import Flow
from studio.models.flow.paged import PagedFlow
from studio.models.flow.sizes import FlowConfig
from studio.models.hift import CausalHift, Hift
from studio.models.hift.window import WindowedHift
from studio.models.hift.window_network import Precision
from studio.speech import FIRST_BLOCK_TOKENS

TYPES = {
    "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "fp8": torch.float8_e4m3fn,
}  # fmt: skip
KEPT_ON_GPU, COMPUTED_ON_GPU = "fp8", "bfloat16"
"""What "auto" is in pages on a GPU (decision 0020), where it has them; elsewhere it is float32."""
FP8_CAPABILITY, BFLOAT16_CAPABILITY = (8, 9), (8, 0)
"""Least compute capability of a GPU whose Triton kernels read fp8, and of one that computes in bfloat16."""
CPU_POOL_BYTES = 2**30
VOCODER_ROWS = 1024
"""More than can be open: twice the most requests. They take 77 MB at full size."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """The settings of the same names. pool_bytes, voice_cache_bytes: 0 for the usual size.

    lm_share: of the GPU that the speech LM has or will take. models: that are to find room on it. capability: of the
    GPU; None on a CPU.
    """

    device: str = "cpu"
    flow_cache: str = "auto"
    flow_precision: str = "auto"
    flow_dtype: str = "auto"
    pool_bytes: int = 0
    vocoder_precision: Precision | Literal["auto"] = "auto"
    voice_cache: int = 16
    voice_cache_bytes: int = 0
    lm_share: float = 0.0
    models: int = 1
    first_block_tokens: int = FIRST_BLOCK_TOKENS
    capability: tuple[int, int] | None = None

    def paged(self, flow: Flow) -> bool:
        """Whether the flow keeps pages."""
        if self.flow_cache == "auto":
            return self.device != "cpu" and isinstance(flow.config, FlowConfig)
        return self.flow_cache == "pages"

    def storage(self, paged: bool) -> torch.dtype:
        """Type of the keys and values that the flow keeps."""
        return self._type(self.flow_precision, self._kept_on_gpu() if paged else "float32")

    def _kept_on_gpu(self) -> str:
        able = self.capability is None or self.capability >= FP8_CAPABILITY
        return KEPT_ON_GPU if able else self._computed_on_gpu()

    def _computed_on_gpu(self) -> str:
        able = self.capability is None or self.capability >= BFLOAT16_CAPABILITY
        return COMPUTED_ON_GPU if able else "float16"

    def compute(self, flow: Flow) -> torch.dtype:
        """Type that the flow's estimator computes in."""
        mixes_by_itself = not isinstance(flow.config, FlowConfig)
        return torch.float32 if mixes_by_itself else self._type(self.flow_dtype, self._computed_on_gpu())

    def convolving(self) -> Precision:
        """Precision of the convolutions of a vocoder in windows."""
        if self.vocoder_precision == "auto":
            return "float32" if self.device == "cpu" else "float16"
        return self.vocoder_precision

    def refuse_what_the_vocoder_lacks(self, windowed: bool) -> None:
        """Raises SettingsError for less than float32 on a CPU, where it would be slower, and beside windows."""
        if self.vocoder_precision in ("auto", "float32") or (windowed and self.device != "cpu"):
            return
        reason = "a CPU has float32 alone" if windowed else "it needs CosyVoice2's vocoder, and flow_cache pages"
        raise SettingsError("settings.bad", name="vocoder_precision", value=self.vocoder_precision, reason=reason)

    def refuse_what_the_gpu_lacks(self) -> None:
        """Raises SettingsError for fp8 on a GPU whose kernels cannot read it."""
        if self.flow_precision == "fp8" and self.capability is not None and self.capability < FP8_CAPABILITY:
            have = ".".join(map(str, self.capability))
            reason = f"the GPU's compute capability is {have}, and 8.9 is needed; bfloat16 needs twice the memory"
            raise SettingsError("settings.bad", name="flow_precision", value="fp8", reason=reason)

    def _type(self, wanted: str, on_gpu: str) -> torch.dtype:
        usual = "float32" if self.device == "cpu" else on_gpu
        return TYPES[usual if wanted == "auto" else wanted]


def assemble(flow: Flow, hift: Hift | CausalHift, how: Assembly) -> TorchToken2Wav:
    """Token2wav of both on their device; takes the memory of its pages. Raises ValueError if that is none,
    SettingsError for types that do not go together."""
    flow = flow.to(how.device).eval()
    vocoder = hift.to(how.device).eval().fold_weight_norm()
    if how.device != "cpu":
        how = replace(how, capability=torch.cuda.get_device_capability(how.device))
    how.refuse_what_the_gpu_lacks()
    paged = how.paged(flow)
    how.refuse_what_the_vocoder_lacks(paged and not isinstance(vocoder, CausalHift))
    if not paged and how.flow_dtype not in ("auto", "float32"):
        raise SettingsError(
            "settings.bad", name="flow_dtype", value=how.flow_dtype, reason="it needs flow_cache pages"
        )
    voices: dict[str, Any] = {
        "voice_cache": how.voice_cache, "voice_cache_bytes": how.voice_cache_bytes,
        "first_block_tokens": how.first_block_tokens,
    }  # fmt: skip
    if not paged:
        return TorchToken2Wav(flow, vocoder, pool_bytes=how.pool_bytes, storage=how.storage(paged), **voices)
    pool = PagedFlow(
        flow,
        pool_bytes=_pool_bytes(how),
        storage=how.storage(paged),
        compute=how.compute(flow),
    )
    if isinstance(vocoder, CausalHift):
        return TorchToken2Wav(pool, vocoder, **voices)
    windowed = WindowedHift(vocoder, max_rows=VOCODER_ROWS, precision=how.convolving())
    return TorchToken2Wav(pool, windowed, **voices)


def _pool_bytes(how: Assembly) -> int:
    if how.device == "cpu":
        return how.pool_bytes or CPU_POOL_BYTES
    free, total = torch.cuda.mem_get_info(how.device)
    if how.pool_bytes > free - WORK_BYTES:
        most = max(0, free - WORK_BYTES) / 2**30
        reason = f"the GPU has room for {most:.1f} GiB now"
        raise SettingsError("settings.bad", name="flow_pool_gib", value=how.pool_bytes / 2**30, reason=reason)
    return how.pool_bytes or gpu_pool_bytes(free, total, how.lm_share, how.models)
