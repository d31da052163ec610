"""Joins the listening tests with the engine, the library and the takes, and puts their routes on the application."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Request

from studio.admin.lending import Lending
from studio.api import engine_settings
from studio.api.guard import Guard
from studio.api.listening import listening_router
from studio.api.listening_material import material_router
from studio.api.listening_report import report_router
from studio.api.listening_speech import ConditionSpeech
from studio.api.owners import Owners
from studio.api.rating import rating_router
from studio.library.store import VoiceStore
from studio.listening.design import Design, item_of
from studio.listening.room import ListeningRoom
from studio.listening.store import GivenClip
from studio.registry.models import Models
from studio.settings import Settings
from studio.speech import SAMPLE_RATE_HZ
from studio.takes.store import TakeStore


def install_listening(
    app: FastAPI,
    models: Models,
    store: VoiceStore,
    takes: TakeStore,
    settings: Settings,
    guard: Guard,
    now: Callable[[], float],
    lending: Lending | None = None,
) -> ListeningRoom:
    """The room, with its routes installed; the caller closes it.

    lending: lends the default model's engine with other settings, where they can change while the studio runs.
    """

    def own() -> Settings:
        return lending.settings if lending else settings

    def present() -> dict[str, object]:
        return engine_settings.of_moment(lending.tuning.settings if lending else settings)

    def own_by_name() -> dict[str, object]:
        return engine_settings.of_moment(own())

    engine = models.default.engine
    speech = ConditionSpeech(models, store, lending.check if lending else engine_settings.possible_with(settings))
    room = ListeningRoom(settings.folder("listening"), speech.speak, speech.check_text, present, now, own_by_name)
    if lending is not None:
        series = room.borrow_from(lending, speech.speak_past_line)
        engine.on_ready(lambda: series.resume() if engine.state().ready else None)
    owners = Owners(room.store, guard)

    def takes_of(request: Request, design: Design) -> list[GivenClip]:
        """Conditions' takes, sentence by sentence in the order given; only the caller's own. Raises NotFound."""
        client = guard.client_of(request)
        found = []
        for condition in design.conditions:
            for number, take_id in enumerate(condition.source.takes if condition.source.kind == "takes" else ()):
                take = takes.find(client, take_id)
                found.append(GivenClip(item_of(number), condition.id, takes.samples(take), SAMPLE_RATE_HZ, take.text))
        return found

    app.include_router(listening_router(room, owners, speech, takes_of, own))
    app.include_router(material_router(room, owners))
    app.include_router(report_router(room, owners, speech.clip_of_voice))
    app.include_router(rating_router(room))
    return room
