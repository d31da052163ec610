"""Loading and unloading models while the studio runs: checked by the planner, logged; a failure is one model's alone.

Settings are `tuning.py`'s, and the default model's workers. A model takes on the settings of the moment of its loading.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from studio.admin.fitting import Fit, Room, WeightBytes, fit
from studio.admin.log import ChangeLog
from studio.admin.monitor import Monitor
from studio.admin.planner import LmSizes
from studio.admin.processes import ProcessMeter
from studio.checkpoint import check_files, read_checkpoint
from studio.errors import AdminBusy, CheckpointError, EngineDraining, InvalidRequest, StudioError
from studio.hub.download import Download
from studio.hub.listing import Repository
from studio.registry.loaded import Loaded
from studio.registry.models import Entry, Models
from studio.settings import Settings

logger = logging.getLogger(__name__)

Load = Callable[[str, Path, Settings], Loaded]
"""A known checkpoint by name and folder, to be started by whoever asks. Raises CheckpointError. Called in a thread."""
DRAIN_S = 180.0
"""How long those who listen to a model that is unloaded are waited for."""
AT_START = "start"
"""Who loads the models that the settings name."""


@dataclass(slots=True)
class Watched:
    """A loaded model's own meter and monitor, and what has the monitor look, unless somebody else does."""

    meter: ProcessMeter
    monitor: Monitor
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class ModelDesk:
    """One thing at a time with each model. Owner: the event loop.

    room: what is free now; settings: those of now; first: what watches the default model.
    """

    models: Models
    load: Load
    settings: Callable[[], Settings]
    room: Callable[[], Room]
    log: ChangeLog
    first: Watched
    _watched: dict[str, Watched] = field(default_factory=dict, repr=False)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict, repr=False)
    _one_load: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    """Held from the look at free memory until a model has taken its own."""
    _starting: asyncio.Task[None] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Load what the settings name, one after another, once the default model is up; what does not fit stays out."""
        if self.settings().load_models and len(self.models.entries) > 1:
            self._starting = asyncio.create_task(self._load_all(), name="load models")

    async def _load_all(self) -> None:
        with contextlib.suppress(StudioError):  # the default's own page tells
            for worker in self.models.default.workers.values():
                await worker.wait_started()
        for entry in list(self.models.entries.values()):
            try:
                if entry.state == "unloaded":
                    await self.begin_load(entry.name, AT_START)
                    await self.settled(entry.name)
            except StudioError as error:
                logger.warning("model %s is not loaded: %s", entry.name, error)
                entry.reason = str(error)

    def monitor_of(self, name: str) -> Monitor | None:
        """The monitor of a model beside the default one, while it is loaded."""
        return self._watched[name].monitor if name in self._watched else None

    def memory_mb(self, name: str) -> float | None:
        """What the workers of a model hold now, of the GPU where there is one; None where nobody tells."""
        watched = self.first if name == self.models.default.name else self._watched.get(name)
        if watched is None:
            return None
        if self.room().memory_bytes:
            return watched.monitor.own_gpu_mb
        return sum(held for part, held in watched.meter.memory_mb().items() if part != "web")

    async def fit_of(self, entry: Entry) -> Fit | None:
        """What it would need now. None of one that is not fetched yet. Raises CheckpointError for no checkpoint."""
        repository = self._repository(entry)
        folder = Path(entry.place) if repository is None else self._download(repository).folder
        try:
            return await asyncio.to_thread(self._fit, folder)
        except CheckpointError:
            if repository is None:
                raise
            return None

    def _fit(self, folder: Path) -> Fit:
        check_files(folder)
        return fit(self.settings(), WeightBytes.of(read_checkpoint(folder)), self.room())

    def _repository(self, entry: Entry) -> Repository | None:
        return Repository.named(entry.place, self.settings())

    def _download(self, repository: Repository) -> Download:
        return Download(repository, self.settings().folder("cache") / "hub")

    async def begin_load(self, name: str, who: str, *, force: bool = False) -> Fit | None:
        """Start to load a model; its entry tells how that goes. force: although the planner says that it does not fit.

        Raises: ModelNotFound; AdminBusy while something is done with it, or it is loaded; CheckpointError;
        InvalidRequest with the figures for one that does not fit. Nothing was begun.
        """
        found = await self.fit_of(self._loadable(name))
        entry = self._loadable(name)  # somebody may have been faster
        if found is not None and not force:
            _refuse_too_large(name, found)
        entry.state, entry.reason, entry.fraction = "loading" if found else "fetching", "", 0.0
        self._tasks[name] = asyncio.create_task(self._load(entry, who, force, found), name=f"load {name}")
        return found

    def begin_unload(self, name: str, who: str, *, abort: bool = False) -> None:
        """Start to unload a model: who comes is refused, who listens is waited for. abort: they are told instead.

        Raises: ModelNotFound; InvalidRequest for the default model; AdminBusy for one that is not loaded.
        """
        entry = self._idle(name)
        if name == self.models.default.name:
            raise InvalidRequest("models.default_stays", param="model", model=name)
        if entry.loaded is None:
            raise AdminBusy("models.not_loaded", param="model", model=name)
        entry.state = "unloading"
        self._tasks[name] = asyncio.create_task(
            self._unload(entry, entry.loaded, who, abort), name=f"unload {name}"
        )

    def _idle(self, name: str) -> Entry:
        """Raises: ModelNotFound, AdminBusy."""
        entry = self.models.find(name)
        if entry.state in ("fetching", "loading", "unloading"):
            raise AdminBusy("models.busy", param="model", model=name)
        return entry

    def _loadable(self, name: str) -> Entry:
        entry = self._idle(name)
        if entry.state == "loaded":
            raise AdminBusy("models.is_loaded", param="model", model=name)
        return entry

    async def _load(self, entry: Entry, who: str, force: bool, found: Fit | None) -> None:
        try:
            folder = await self._fetched(entry)
            async with self._one_load:
                found = await asyncio.to_thread(self._fit, folder)
                if not force:
                    _refuse_too_large(entry.name, found)
                entry.state = "loading"
                settings = await asyncio.to_thread(settings_for, folder, self.settings())
                loaded = await asyncio.to_thread(self.load, entry.name, folder, settings)
                await self.models.begin(loaded)
            try:
                await self._watch(loaded)
            except Exception:
                await loaded.engine.close()
                raise
            self.models.put(loaded)
        except Exception as error:  # whatever it is, the other models go on
            if not isinstance(error, StudioError):
                logger.exception("model %s could not be loaded", entry.name)
            entry.state, entry.reason = "failed", str(error) or type(error).__name__
        self._note(entry, who, "unloaded", found)

    async def _fetched(self, entry: Entry) -> Path:
        """The folder of a checkpoint, once all of it is here. Raises HubError."""
        repository = self._repository(entry)
        if repository is None:
            return Path(entry.place)
        download = self._download(repository)
        running = asyncio.create_task(download.run())
        try:
            while not (await asyncio.wait((running,), timeout=1.0))[0]:
                entry.fraction = download.progress.fraction
        finally:
            running.cancel()
        return running.result()

    async def _unload(self, entry: Entry, loaded: Loaded, who: str, abort: bool) -> None:
        try:
            told = EngineDraining("models.ended", retry_after_s=1.0)
            await self.models.end(loaded, told, 0.0 if abort else DRAIN_S)
        except Exception:
            logger.exception("model %s could not be ended well", entry.name)
        await self._unwatch(entry.name)
        entry.loaded, entry.state = None, "unloaded"
        self._note(entry, who, "loaded", None)

    async def _watch(self, loaded: Loaded) -> None:
        meter = ProcessMeter(lambda: loaded.pids)
        monitor = Monitor(loaded.engine, meter)
        await monitor.sample()
        task = asyncio.create_task(monitor.run(), name=f"monitor {loaded.name}")
        self._watched[loaded.name] = Watched(meter, monitor, task)

    async def _unwatch(self, name: str) -> None:
        watched = self._watched.pop(name, None)
        if watched is not None and watched.task is not None:
            watched.task.cancel()
            await asyncio.gather(watched.task, return_exceptions=True)

    def _note(self, entry: Entry, who: str, before: str, planned: Fit | None) -> None:
        outcome = "failed" if entry.state == "failed" else "applied"
        logger.warning("model %s is %s, by %s. %s", entry.name, entry.state, who, entry.reason)
        predicted = {} if planned is None else {"memory_mb": planned.needs_bytes / 1e6}
        found: Mapping[str, Any] = {"memory_mb": self.memory_mb(entry.name)}
        was, now = ({f"model {entry.name}": state} for state in (before, entry.state))
        self.log.add(who, was, now, outcome, entry.reason, predicted, found)

    async def settled(self, name: str) -> None:
        """Wait for the end of what is being done with a model."""
        if name in self._tasks:
            await asyncio.gather(self._tasks[name], return_exceptions=True)

    async def close(self) -> None:
        """Leave off; the models themselves are closed with the registry."""
        tasks = [*self._tasks.values(), *(w.task for w in self._watched.values() if w.task)]
        tasks += [] if self._starting is None else [self._starting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def settings_for(folder: Path, settings: Settings) -> Settings:
    """The settings of a model that are the first one's, but for its folder, and no longer than its speech LM reads."""
    most = LmSizes.of(read_checkpoint(folder)).positions or settings.max_model_len
    return settings.model_copy(
        update={"model_dir": str(folder), "max_model_len": min(most, settings.max_model_len)}
    )


def _refuse_too_large(name: str, found: Fit) -> None:
    """Raises: InvalidRequest with the figures."""
    if not found.fits:
        assert found.free_bytes is not None
        needs, free = found.needs_bytes / 1e9, found.free_bytes / 1e9
        raise InvalidRequest("models.does_not_fit", param="model", model=name, needs=needs, free=free)
