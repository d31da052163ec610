"""Makes vLLM's processes find the speech LM where nobody has installed the studio.

A Space only reads requirements.txt, so `app.py` calls this before it starts the engine. Where `make run` has
set the machine up, it only looks.
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

from . import pip
from .place import Place

PLUGINS = {
    "vllm.general_plugins": "studio.models.speech_lm.plugin:register",
    "vllm.logits_processors": "studio.models.speech_lm.ras_processor:RepetitionAwareSampling",
}
"""By vLLM's groups of entry points."""


def is_registered() -> bool:
    """Return whether this Python's packages name the speech LM's plugins."""
    return all(
        wanted in [plugin.value for plugin in importlib.metadata.entry_points(group=group)]
        for group, wanted in PLUGINS.items()
    )


def ensure_registered(root: Path) -> None:
    """Install the studio at `root` in place, into the running Python, unless that is done.

    Raises: SetupProblem if pip fails.
    """
    if not is_registered():
        pip.install_studio(Place(root, Path(sys.prefix)))
