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

GROUP = "vllm.general_plugins"
PLUGIN = "studio.models.speech_lm.plugin:register"


def is_registered() -> bool:
    """Return whether this Python's packages name the speech LM's plugin."""
    return PLUGIN in [plugin.value for plugin in importlib.metadata.entry_points(group=GROUP)]


def ensure_registered(root: Path) -> None:
    """Install the studio at `root` in place, into the running Python, unless that is done.

    Raises: SetupProblem if pip fails.
    """
    if not is_registered():
        pip.install_studio(Place(root, Path(sys.prefix)))
