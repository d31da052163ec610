"""Voices of upstream's spk2info.pt into the library. The file is read by a worker, with weights only; never here."""

from __future__ import annotations

import asyncio
import zipfile
from typing import IO, Any

from studio.archive import BROKEN, open_zip
from studio.errors import CheckpointError, InvalidRequest, RequestTooLarge
from studio.library.prompts import VoicePrompts
from studio.library.store import VoiceStore
from studio.library.unpacking import MAX_ENTRIES, too_many_files
from studio.library.voice import NAME_MAX_CHARS, Voice

MAX_BYTES = 60_000_000
NAMELESS = "spk2info"
TOLD = {"checkpoint.code": "bundle.spk2info_code", "checkpoint.misfit": "bundle.spk2info_misfit"}
"""What the worker says of such a file, as it is told to whoever sent it."""


def is_spk2info(file: IO[bytes]) -> bool:
    """Whether this is what torch.save writes: a zip file with a pickle in it, whatever that holds."""
    try:
        with open_zip(file, too_many_files()) as stored:
            return any(name.endswith("/data.pkl") and name.count("/") == 1 for name in stored.namelist())
    except (*BROKEN, RequestTooLarge):
        return False
    finally:
        file.seek(0)


async def take_spk2info(
    file: IO[bytes], consent: str, store: VoiceStore, prompts: VoicePrompts
) -> list[Voice]:
    """Take its voices in; they have no clip, so they speak with the models that are loaded now and with no others.

    Raises: InvalidRequest, RequestTooLarge: nothing was taken in. EngineNotReady, EngineDead: without the worker.
    """
    try:
        found = await prompts.read_voices(await asyncio.to_thread(_checked, file))
    except CheckpointError as error:
        why: dict[str, Any] = {k: v for k, v in error.values.items() if k in ("reason", "code")}
        raise InvalidRequest(TOLD.get(error.key, "bundle.spk2info"), param="bundle", **why) from error
    if store.room() < len(found):
        raise InvalidRequest("voice.limit", limit=store.max_voices)
    taken = []
    for name, prompt in found.items():
        label = "".join(sign for sign in name if sign.isprintable())[:NAME_MAX_CHARS].strip() or NAMELESS
        source = prompts.keep_given(prompt)
        voice = Voice(
            "",
            store.free_name(label),
            "user",
            source.transcript,
            "",
            consent,
            "spk2info.pt",
            source.clip,
            0.0,
            0.0,
        )
        taken.append(store.insert(voice))
    return taken


def _checked(file: IO[bytes]) -> bytes:
    """The bytes, if they unpack to no more than they are: torch packs nothing tighter."""
    with open_zip(file, too_many_files()) as stored:
        entries = stored.infolist()
        if len(entries) > MAX_ENTRIES or sum(entry.file_size for entry in entries) > MAX_BYTES:
            raise RequestTooLarge("bundle.too_large", param="bundle", limit=MAX_BYTES / 1e6)
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise InvalidRequest("bundle.spk2info", param="bundle")
    file.seek(0)
    return file.read()
