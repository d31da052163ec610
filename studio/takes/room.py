"""Whose takes make room for whose, and how much one client may keep for good. Decides only; the store forgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from studio.errors import ClientError

CLIENT_SHARE = 0.5
"""Of the room: what one client may keep with a star or in scripts; who holds more makes room with takes of its own."""
KEPT_SHARE = 0.75
"""Of the room: what all clients together may keep so. The rest is always there for new takes, whosever they are."""


@dataclass(frozen=True, slots=True)
class Loose:
    """A take that nothing keeps."""

    id: str
    client: str
    size_bytes: int


def refuse_beyond_share(own_kept_bytes: int, all_kept_bytes: int, limit_bytes: int) -> None:
    """Refuse to keep so much for good. Raises ClientError take.kept_share, take.kept_all."""
    if own_kept_bytes > CLIENT_SHARE * limit_bytes:
        raise ClientError("take.kept_share", param="take", limit=CLIENT_SHARE * limit_bytes / 1e6)
    if all_kept_bytes > KEPT_SHARE * limit_bytes:
        raise ClientError("take.kept_all", param="take", limit=KEPT_SHARE * limit_bytes / 1e6)


def going(loose: Sequence[Loose], held_bytes: Mapping[str, int], excess_bytes: int, limit_bytes: int) -> list[str]:
    """Ids of the takes to forget, so that so many bytes become free.

    The oldest goes, but while a client holds more than its share, the oldest of its own.

    Args:    loose: the oldest first. held_bytes: of each client, with the take that needs the room.
    Raises:  ClientError take.no_room when all of them would not be enough.
    """
    left, held, ids = list(loose), dict(held_bytes), []
    while excess_bytes > 0:
        if not left:
            raise ClientError("take.no_room", limit=limit_bytes / 1e6)
        take = next((one for one in left if held[one.client] > CLIENT_SHARE * limit_bytes), left[0])
        left.remove(take)
        ids.append(take.id)
        held[take.client] -= take.size_bytes
        excess_bytes -= take.size_bytes
    return ids
