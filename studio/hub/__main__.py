"""`python -m studio.hub FunAudioLLM/CosyVoice2-0.5B`: fetch a checkpoint beforehand, and print its folder.

The same flags as app.py choose hub, revision and place, such as --hub modelscope; app.py then finds it there.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from studio.errors import SettingsError, StudioError
from studio.hub.download import Download
from studio.hub.listing import Repository
from studio.settings import load

SHOW_EVERY_S = 2.0


async def fetch(repository: Repository, root: Path) -> Path:
    """Download, telling on stderr how far it is."""
    download = Download(repository, root)
    running = asyncio.create_task(download.run())
    while not (await asyncio.wait({running}, timeout=SHOW_EVERY_S))[0]:
        at = download.progress
        figures = f"{at.done_bytes / 1e9:.2f} of {at.total_bytes / 1e9:.2f} GB"
        print(f"{figures}  {at.trouble or at.file}", file=sys.stderr, flush=True)
    return running.result()


def main(argv: list[str]) -> int:
    if not argv or argv[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        settings = load(["--model-dir", *argv])
        repository = Repository.of(settings)
        if repository is None:
            raise SettingsError("settings.bad", name="model_dir", value=argv[0], reason="it names no repository")
        print(asyncio.run(fetch(repository, settings.folder("cache") / "hub")))
    except StudioError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
