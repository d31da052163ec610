"""Models by name: the default one, which is always loaded, and those that come and go beside it. Starts none itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from studio.engine.outlook import Progress
from studio.errors import ModelNotFound, ModelNotLoaded, StudioError
from studio.library.voice import Voice
from studio.registry.loaded import Loaded

State = Literal["unloaded", "fetching", "loading", "loaded", "unloading", "failed"]
COMING = ("fetching", "loading")
RETRY_S = 10.0
"""When to ask again for a model that is being loaded."""


@dataclass(slots=True)
class Entry:
    """A known checkpoint. place: its folder or its name on a hub. reason: why it failed; "" otherwise."""

    name: str
    place: str
    state: State = "unloaded"
    reason: str = ""
    fraction: float = 0.0
    """Of the fetching."""
    loaded: Loaded | None = field(default=None, repr=False)


class Models:
    """Owner: the event loop of the engines.

    default: what a request gets that names no model. known: further checkpoints by name. Raises ValueError for a name
    that two have.
    """

    def __init__(self, default: Loaded, place: str = "", known: Mapping[str, str] | None = None) -> None:
        self.default = default
        known = known or {}
        if default.name in known:
            raise ValueError(default.name)
        self.entries = {default.name: Entry(default.name, place, "loaded", loaded=default)}
        self.entries |= {name: Entry(name, place) for name, place in known.items()}
        self._adopt(default)

    def __iter__(self) -> Iterator[Loaded]:
        """Those that may be asked to speak, the default first."""
        return iter([e.loaded for e in self.entries.values() if e.loaded is not None and e.state == "loaded"])

    def get(self, name: str = "") -> Loaded:
        """The model that a request names; "" and, where only one is known, any name mean the default.

        Raises: ModelNotFound for a name that none has; ModelNotLoaded for one that cannot speak now, with what to do.
        """
        if not name or len(self.entries) == 1:
            return self.default
        entry = self.entries.get(name)
        if entry is None:
            known = ", ".join(self.entries)
            raise ModelNotFound("models.unknown", param="model", model=name[:80], known=known)
        if entry.loaded is not None and entry.state == "loaded":
            return entry.loaded
        if entry.state in COMING:
            raise ModelNotLoaded("models.coming", param="model", model=name, retry_after_s=RETRY_S)
        speaking = ", ".join(loaded.name for loaded in self)
        raise ModelNotLoaded("models.unloaded", param="model", model=name, loaded=speaking)

    def of_take(self, name: str) -> Loaded:
        """The model that made a take; the default for one that nobody knows any more. Raises ModelNotLoaded."""
        return self.get(name if name in self.entries else "")

    def find(self, name: str) -> Entry:
        """Raises: ModelNotFound."""
        if name not in self.entries:
            raise ModelNotFound(
                "models.unknown", param="model", model=name[:80], known=", ".join(self.entries)
            )
        return self.entries[name]

    def put(self, loaded: Loaded) -> None:
        """From now on requests that name this known model are spoken by it."""
        entry = self.entries[loaded.name]
        entry.loaded, entry.state, entry.reason = loaded, "loaded", ""

    def progress(self, request_id: str) -> Progress | None:
        """As `Engine.progress`, of whichever model has the request."""
        return next((found for m in self if (found := m.engine.progress(request_id)) is not None), None)

    def abort(self, request_id: str) -> bool:
        """As `Engine.abort`, likewise."""
        return any(entry.loaded.engine.abort(request_id) for entry in self.entries.values() if entry.loaded)

    def expect(self, voice: Voice) -> None:
        """Somebody may speak with this voice soon. The default model alone gets ready: an encoding takes seconds."""
        self.default.prompts.expect(voice)

    def forget(self, voice: Voice) -> None:
        """Drop what any model has kept of a deleted voice."""
        for loaded in self:
            loaded.prompts.forget(voice)

    async def start(self) -> None:
        """Start the default; returns before it is ready."""
        await self.default.engine.start()

    async def begin(self, loaded: Loaded) -> None:
        """Start another and wait until it is ready. Raises StudioError with why it is not; it is closed then."""
        self._adopt(loaded)
        try:
            await loaded.engine.start()
            for worker in loaded.workers.values():
                await worker.wait_started()
        except BaseException:
            await loaded.engine.close()
            loaded.prompts.hide_presets()
            raise

    async def end(self, loaded: Loaded, told: StudioError, drain_s: float) -> None:
        """Close a model once its listeners have ended, or after drain_s seconds, when they are told."""
        if drain_s:
            await loaded.engine.drain(drain_s)
        await loaded.engine.close(told)
        loaded.prompts.hide_presets()

    async def close(self) -> None:
        """Close every model."""
        await asyncio.gather(
            *(e.loaded.engine.close() for e in self.entries.values() if e.loaded is not None)
        )

    @staticmethod
    def _adopt(loaded: Loaded) -> None:
        """What is to be done whenever its workers have become ready."""
        loaded.engine.on_ready(loaded.prompts.show_presets)
        loaded.engine.on_ready(loaded.prompts.prepare_expected)
