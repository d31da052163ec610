"""Sizes of a HiFT vocoder, read from the tensors of its checkpoint; builds no modules."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from studio.models.weights import WeightsError


@dataclass(frozen=True, slots=True)
class HiftConfig:
    """Sizes of one vocoder; the defaults are CosyVoice2's.

    Everything but the dilations and the constants of the source can be read from tensor shapes
    (`from_state`), so that the official files and smaller ones load by the same code.
    """

    mel_bins: int = 80
    base_channels: int = 512
    f0_channels: int = 512
    f0_layers: int = 5
    upsample_rates: tuple[int, ...] = (8, 5, 3)
    upsample_kernels: tuple[int, ...] = (16, 11, 7)
    resblock_kernels: tuple[int, ...] = (3, 7, 11)
    source_resblock_kernels: tuple[int, ...] = (7, 7, 11)
    dilations: tuple[int, ...] = (1, 3, 5)
    pre_kernel: int = 7
    post_kernel: int = 7
    n_fft: int = 16
    hop_samples: int = 4            # of the inverse STFT
    harmonics: int = 9              # the pitch itself and eight overtones
    sample_rate_hz: int = 24_000
    sine_amplitude: float = 0.1
    noise_std: float = 0.003        # beside voiced sines; unvoiced noise is a third of the sine amplitude
    voiced_above_hz: float = 10.0
    largest_magnitude: float = 100.0
    largest_sample: float = 0.99
    float32_phase: bool = False
    """Sum the phase as upstream does, in float32: it loses 0.01 rad in long speech and cannot be streamed."""

    @property
    def samples_per_frame(self) -> int:
        """Samples of one mel frame (480)."""
        return self.spectra_per_frame * self.hop_samples

    @property
    def spectra_per_frame(self) -> int:
        """Spectrum frames of one mel frame (120)."""
        product = 1
        for rate in self.upsample_rates:
            product *= rate
        return product

    @property
    def source_strides(self) -> tuple[int, ...]:
        """Spectrum frames per step of each stage: what its source branch is thinned by (15, 3, 1)."""
        strides, left = [], self.spectra_per_frame
        for rate in self.upsample_rates:
            left //= rate
            strides.append(left)
        return tuple(strides)

    def channels(self, stage: int) -> int:
        """Channels after the upsampling of a stage."""
        return self.base_channels // 2 ** (stage + 1)

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], source: str = "hift") -> "HiftConfig":
        """Read the sizes from a state with canonical names (`checkpoint.canonical_names`).

        Raises:  WeightsError if a tensor that tells a size is missing.
        """
        try:
            return cls._read(state)
        except (KeyError, ZeroDivisionError) as error:
            raise WeightsError(f"{source}: not a HiFT vocoder, {error} is missing") from error

    @classmethod
    def _read(cls, state: Mapping[str, Tensor]) -> "HiftConfig":
        def shape(name: str) -> tuple[int, ...]:
            return tuple(state[f"{name}.parametrizations.weight.original1"].shape)

        def count(prefix: str) -> int:
            return len({name.split(".")[len(prefix.split("."))] for name in state
                        if name.startswith(prefix + ".")})

        stages = count("ups")
        kernels_per_stage = count("resblocks") // stages
        up_kernels = tuple(shape(f"ups.{i}")[2] for i in range(stages))
        base, mel_bins, pre_kernel = shape("conv_pre")
        spectrum_channels, _, post_kernel = shape("conv_post")
        return cls(
            mel_bins=mel_bins, base_channels=base,
            f0_channels=shape("f0_predictor.condnet.0")[0], f0_layers=count("f0_predictor.condnet"),
            upsample_rates=tuple(k // 2 for k in up_kernels), upsample_kernels=up_kernels,
            resblock_kernels=tuple(shape(f"resblocks.{i}.convs1.0")[2] for i in range(kernels_per_stage)),
            source_resblock_kernels=tuple(
                shape(f"source_resblocks.{i}.convs1.0")[2] for i in range(stages)),
            pre_kernel=pre_kernel, post_kernel=post_kernel, n_fft=spectrum_channels - 2,
            harmonics=state["m_source.l_linear.weight"].shape[1],
        )
