"""The rooms import one way, the web process names no torch, and one module reads the environment."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

NOUNS = {
    "speech", "messages", "protocols", "errors", "settings", "checkpoint", "combinations", "database", "archive",
    "gpu_shares", "heap", "threads",
}  # fmt: skip
SERVED = NOUNS | {
    "engine", "hub", "library", "listening", "metrics", "audio", "text", "takes", "script", "admin", "checks",
    "registry",
}  # fmt: skip
COMMAND = SERVED | {"models", "backends", "training"}
# room or module of studio/ -> what it may import from studio/, besides itself
MAY_IMPORT: dict[str, set[str]] = {
    "speech": set(),
    "messages": set(),
    "protocols": {"speech"},
    "errors": {"messages"},
    "settings": {"errors", "speech"},
    "checkpoint": {"errors", "speech"},
    "combinations": set(),
    "gpu_shares": set(),
    "threads": set(),
    "channel": {"errors"},
    "shelf": {"speech"},
    "heap": set(),
    "database": set(),
    "archive": {"errors"},
    "hub": NOUNS,
    "text": NOUNS,
    "audio": NOUNS,
    "models": NOUNS - {"settings"},
    "backends": NOUNS - {"settings"} | {"models", "audio", "channel", "shelf"},
    "engine": NOUNS - {"settings"} | {"channel", "shelf", "audio", "text"},
    "library": NOUNS - {"settings"} | {"audio", "text"},
    "takes": NOUNS - {"settings"} | {"audio", "library"},
    "script": NOUNS - {"settings"} | {"audio", "engine", "library", "takes"},
    "checks": NOUNS - {"settings"} | {"audio", "text"},
    "listening": NOUNS - {"settings"} | {"audio", "text"},
    "metrics": NOUNS | {"engine"},
    "registry": NOUNS - {"settings"} | {"engine", "library"},
    "admin": NOUNS | {"engine", "bench", "hub", "registry"},
    "api": SERVED,
    "ui": SERVED,
    "training": NOUNS - {"settings"} | {"models", "audio", "text"},
    "bench": COMMAND | {"setup"},  # makes the speech LM known to vLLM, as app.py does
    "doctor": COMMAND | {"bench", "setup"},
    "evaluate": COMMAND,
    "parity": COMMAND,
    "setup": set(),
    "readme": {"settings"},
}
WEB_ROOMS = SERVED | {"api", "ui"}
HEAVY = {"torch", "torchaudio", "vllm", "transformers", "onnxruntime", "ctranslate2", "faster_whisper"}

# file -> why it goes against the table
MAY_ALSO_IMPORT = {
    ("studio/evaluate/comparison.py", "bench"): "starts the studio with one setting after the other",
    ("studio/bench/host.py", "api"): "serves the API on workers that compute nothing",
    ("studio/bench/inside.py", "api"): "serves the studio in its own process",
    ("studio/training/likeness.py", "evaluate"): "judges flows as the evaluation judges voices",
    ("studio/settings.py", "setup"): "has other defaults where the installer finds a GPU",
    ("studio/backends/vllm_compat.py", "setup"): "looks for a GPU as the installer does",
    ("studio/api/web.py", "ui"): "puts the page on the same server as the API",
}
MAY_TOUCH_ENVIRONMENT = {
    "studio/settings.py": "the reader",
    "studio/api/web.py": "Gradio takes its analytics switch from the environment only",
    "studio/backends/vllm_compat.py": "vLLM takes its settings from the environment only",
}


def sources() -> list[Path]:
    found = sorted((ROOT / "studio").rglob("*.py"))
    return [*found, *(path for path in [ROOT / "app.py"] if path.exists())]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def room_of(path: Path) -> str:
    """Return the first name below studio/, or "app"."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[1] if len(parts) > 1 else parts[0]


def imports(path: Path) -> Iterator[str]:
    """Yield the full dotted name of each module that `path` imports, wherever in the file it does so."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ([f"studio.{alias.name}" for alias in node.names] if base == "studio" else [base])


def touches_environment(path: Path) -> bool:
    names = {"environ", "getenv", "putenv", "environb"}
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute) and node.attr in names:
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "os" and names & {a.name for a in node.names}:
            return True
    return False


def test_imports_between_rooms_follow_the_arrows() -> None:
    wrong = []
    for path in sources():
        room, name = room_of(path), str(path.relative_to(ROOT))
        if room in ("app", "__init__"):
            continue
        for module in imports(path):
            other = module.split(".")[1] if module.startswith("studio.") else room
            allowed = other in MAY_IMPORT[room] or (name, other) in MAY_ALSO_IMPORT
            if other not in (room, "__version__") and not allowed:
                wrong.append(f"{name} imports {module}")
    assert wrong == []


def test_every_room_has_a_row_in_the_table() -> None:
    rooms = {room_of(path) for path in sources()} - {"app", "__init__"}
    assert rooms <= MAY_IMPORT.keys()


def test_no_room_of_the_web_process_names_torch_or_vllm() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sources()
        if room_of(path) in WEB_ROOMS
        for module in imports(path)
        if module.split(".")[0] in HEAVY
    ]
    assert wrong == []


def test_the_environment_is_touched_where_it_is_said_to_be_and_nowhere_else() -> None:
    touching = {str(path.relative_to(ROOT)) for path in sources() if touches_environment(path)}
    assert touching == set(MAY_TOUCH_ENVIRONMENT)


def test_no_room_is_named_for_nothing() -> None:
    nameless = {"utils", "util", "common", "helpers", "misc", "base"}
    assert not {path.stem for path in sources()} & nameless
    assert not {path.parent.name for path in sources()} & nameless


def test_the_installer_imports_the_standard_library_only() -> None:
    """It runs before anything is installed; only its check runs inside, and imports what it checks."""
    for path in sources():
        if room_of(path) == "setup" and path.name != "check.py":
            outside = (
                {module.split(".")[0] for module in imports(path)} - set(sys.stdlib_module_names) - {"studio"}
            )
            assert outside == set(), path
