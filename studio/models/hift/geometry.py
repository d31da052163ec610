"""How far every part of the vocoder sees, in whole positions; arithmetic only, no tensors.

Streams, from mel to sound: f0 (a value a frame), source samples, source spectra (120 F + 1), the source
branch and the output of each stage, samples. A part is asked two things: up to which position its output
is final given what its input holds (`*_end`), and from which input position on it must be run to give
outputs from a position on (`*_start`). Positions are absolute in the utterance; ends are exclusive.
"""

from dataclasses import dataclass
from functools import cached_property

from studio.models.hift.config import HiftConfig


def _resblock_reach(kernel: int, dilations: tuple[int, ...]) -> int:
    """Positions that a residual block sees to one side: a dilated and a plain convolution a dilation."""
    return sum((kernel // 2) * (dilation + 1) for dilation in dilations)


@dataclass(frozen=True)
class HiftGeometry:
    """Reach of the parts of one vocoder.

    right_ratio: share of the decoder's right reach that is waited for. 1 is exact. Less gives sound
    sooner: the last outputs of a step then see zeros where the future belongs, and stay so. The pitch
    always waits for its five frames, since an error in it would shift the phase of all that follows.
    """

    config: HiftConfig
    right_ratio: float = 1.0

    def _right(self, reach: int) -> int:
        return round(self.right_ratio * reach)

    @property
    def stages(self) -> int:
        return len(self.config.upsample_rates)

    def is_last(self, stage: int) -> bool:
        return stage == self.stages - 1

    def total(self, stage: int, frames: int) -> int:
        """Positions of a stage's output over a whole utterance; the last stage has one more, in front."""
        rate = self.config.spectra_per_frame // self.config.source_strides[stage]
        return frames * rate + (1 if self.is_last(stage) else 0)

    # f0 and source spectra

    def f0_end(self, mel_end: int) -> int:
        return mel_end - self.config.f0_layers

    def f0_start(self, f0_from: int) -> int:
        return max(0, f0_from - self.config.f0_layers)

    def source_end(self, f0_end: int) -> int:
        """Samples: the phase behind the last frame's centre waits for the next frame."""
        return f0_end * self.config.samples_per_frame - self.config.samples_per_frame // 2

    def spectra_end(self, source_end: int) -> int:
        return (source_end - self.config.n_fft // 2) // self.config.hop_samples + 1

    # source branch: strided convolution (kernel 2 s, padding s // 2; plain for s = 1), residual block

    def branch_reach(self, stage: int) -> int:
        return _resblock_reach(self.config.source_resblock_kernels[stage], self.config.dilations)

    def branch_valid(self, stage: int, spectra_end: int) -> int:
        """End of what the strided convolution gives from these spectra."""
        stride = self.config.source_strides[stage]
        kernel = 1 if stride == 1 else 2 * stride
        return (spectra_end - kernel + stride // 2) // stride + 1

    def branch_end(self, stage: int, spectra_end: int) -> int:
        return self.branch_valid(stage, spectra_end) - self._right(self.branch_reach(stage))

    def branch_start(self, stage: int, branch_from: int) -> int:
        """In spectra, a multiple of the stride; one position more, whose input would be padding."""
        stride = self.config.source_strides[stage]
        return stride * max(0, branch_from - self.branch_reach(stage) - (1 if stride > 1 else 0))

    # stage: (first one: convolution on mel) upsampling, plus branch, residual blocks (last one: convolution)

    def _before(self, stage: int) -> int:
        return self.config.pre_kernel // 2 if stage == 0 else 0

    def stage_reach(self, stage: int) -> int:
        reach = _resblock_reach(max(self.config.resblock_kernels), self.config.dilations)
        return reach + (self.config.post_kernel // 2 if self.is_last(stage) else 0)

    def stage_valid(self, stage: int, input_end: int, branch_end: int) -> int:
        """End of upsampled input plus branch, before the residual blocks."""
        rate, kernel = self.config.upsample_rates[stage], self.config.upsample_kernels[stage]
        upsampled = rate * (input_end - self._right(self._before(stage))) - (kernel - rate) // 2
        return min(upsampled + (1 if self.is_last(stage) else 0), branch_end)

    def stage_end(self, stage: int, input_end: int, branch_end: int) -> int:
        return self.stage_valid(stage, input_end, branch_end) - self._right(self.stage_reach(stage))

    def stage_start(self, stage: int, output_from: int) -> int:
        """In positions of the stage's input; its output there begins at rate x this."""
        rate, kernel = self.config.upsample_rates[stage], self.config.upsample_kernels[stage]
        first = output_from - self.stage_reach(stage) - (1 if self.is_last(stage) else 0)
        return max(0, (first + (kernel - rate) // 2 - kernel + 1) // rate - self._before(stage))

    def samples_end(self, last_stage_end: int) -> int:
        return max(0, last_stage_end * self.config.hop_samples - self.config.n_fft // 2)

    def samples_ready(self, frames: int) -> int:
        """Samples that can be given when this many mel frames are there and more will come."""
        spectra = self.spectra_end(self.source_end(self.f0_end(frames)))
        end = frames
        for stage in range(self.stages):
            end = max(0, self.stage_end(stage, end, max(0, self.branch_end(stage, spectra))))
        return self.samples_end(end)

    @cached_property
    def lookahead_samples(self) -> int:
        """Samples held back behind the newest mel frame."""
        frames = 1000
        return frames * self.config.samples_per_frame - self.samples_ready(frames)

    @property
    def lookahead_frames(self) -> int:
        """Mel frames that must follow a frame before all of its samples are given."""
        return -(-self.lookahead_samples // self.config.samples_per_frame)
