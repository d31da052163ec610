"""Who may run: a bounded queue that serves clients in turn. Knows requests by id only, and no clock."""

from __future__ import annotations

import asyncio
from collections import deque

from studio.errors import EngineDraining, QueueFull

FIRST_GUESS_S = 10.0
"""Seconds that a request is said to run before any was measured."""


class Admission:
    """Places to run and places to wait. Owner: the engine's event loop."""

    def __init__(self, max_running: int, queue_size: int, max_per_client: int) -> None:
        self._max_running = max_running
        self._queue_size = queue_size
        self._max_per_client = max_per_client
        self._running: dict[str, str] = {}  # request id -> client
        self._waiting: dict[str, deque[Ticket]] = {}  # client -> its tickets; first client is next in turn
        self._measured_s: float | None = None
        self._narrowed: int | None = None
        self._draining = False
        self._held = False
        self._empty = asyncio.Event()
        self._empty.set()
        self.refused = 0
        """Requests that found no place, neither to run nor to wait."""

    def limit(self, max_running: int, queue_size: int, max_per_client: int) -> None:
        """Other limits from now on; who is in already stays."""
        self._max_running, self._queue_size, self._max_per_client = max_running, queue_size, max_per_client
        self._fill_places()

    def hold(self) -> None:
        """Give no place to run until `release`; who comes waits in line."""
        self._held = True

    async def emptied(self) -> None:
        """Wait until no place is taken."""
        await self._empty.wait()

    def release(self) -> None:
        self._held = False
        self._fill_places()

    def narrow(self) -> None:
        """Memory is full: one place fewer than are taken, until requests that end well give them back one by one."""
        self._narrowed = max(1, self.running - 1)

    @property
    def places(self) -> int:
        """Requests that may run at once now."""
        return self._max_running if self._narrowed is None else min(self._narrowed, self._max_running)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return sum(len(tickets) for tickets in self._waiting.values())

    def enter(self, request_id: str, client: str, urgent: bool = False) -> Ticket:
        """A ticket that has, or will get, a place to run. Raises as `refuse_if_full`.

        urgent: before the client's other waiting requests, but for urgent ones; never before those of others.
        """
        self.refuse_if_full(client)
        ticket = Ticket(self, request_id, client, urgent)
        tickets = self._waiting.setdefault(client, deque())
        at = sum(other.urgent for other in tickets) if urgent else len(tickets)
        tickets.insert(at, ticket)
        self._fill_places()
        return ticket

    def refuse_if_full(self, client: str) -> None:
        """Nothing, if the client would get a ticket now.

        Raises: QueueFull with retry_after_s when all places are taken or the client has its share; EngineDraining.
        """
        if self._draining:
            raise EngineDraining("engine.draining")
        mine = sum(c == client for c in self._running.values()) + len(self._waiting.get(client, ()))
        if mine >= self._max_per_client:
            self.refused += 1
            seconds = self.expected_wait_s(0)
            raise QueueFull("queue.client_full", limit=self._max_per_client, retry_after_s=seconds)
        if self.waiting >= self._queue_size and (self._held or self.running >= self.places):
            self.refused += 1
            seconds = self.expected_wait_s(0)
            raise QueueFull("queue.full", waiting=self.waiting, seconds=seconds, retry_after_s=seconds)

    def expected_wait_s(self, ahead: int) -> float:
        """Seconds until a place is free with so many requests before it, from the measured time of a request."""
        per_place_s = (self._measured_s or FIRST_GUESS_S) / self.places
        return max(1.0, per_place_s * (ahead + 1))

    def ahead(self, ticket: Ticket) -> list[str]:
        """The waiting requests that get a place before this one, in order; none when it is next or runs."""
        lines = {client: deque(tickets) for client, tickets in self._waiting.items()}
        before: list[str] = []
        while lines:
            client = next(iter(lines))
            tickets = lines.pop(client)
            if (first := tickets.popleft()) is ticket:
                return before
            before.append(first.request_id)
            if tickets:
                lines[client] = tickets
        return []

    def measured(self, seconds: float) -> None:
        """A request took so long from its place to its end, which went well."""
        if self._narrowed is not None:
            self._narrowed = self._narrowed + 1 if self._narrowed < self._max_running else None
        self._measured_s = seconds if self._measured_s is None else 0.8 * self._measured_s + 0.2 * seconds
        self._fill_places()

    def drain(self) -> None:
        """Let nobody in any more; who waits or runs goes on."""
        self._draining = True

    def leave(self, ticket: Ticket) -> None:
        if self._running.pop(ticket.request_id, None) is None and ticket.client in self._waiting:
            tickets = self._waiting[ticket.client]
            if ticket in tickets:
                tickets.remove(ticket)
            if not tickets:
                del self._waiting[ticket.client]
        self._fill_places()

    def _fill_places(self) -> None:
        while self._waiting and not self._held and self.running < self.places:
            client = next(iter(self._waiting))
            tickets = self._waiting.pop(client)
            ticket = tickets.popleft()
            if tickets:  # back to the end of the round
                self._waiting[client] = tickets
            self._running[ticket.request_id] = client
            ticket.granted.set()
        if self._running:
            self._empty.clear()
        else:
            self._empty.set()


class Ticket:
    """One request's claim to a place; give it back with `leave`, whether it ran or only waited."""

    def __init__(self, admission: Admission, request_id: str, client: str, urgent: bool = False) -> None:
        self.request_id = request_id
        self.client = client
        self.urgent = urgent
        self.granted = asyncio.Event()
        self._admission = admission

    async def turn(self) -> None:
        """Wait for the place."""
        await self.granted.wait()

    def ahead(self) -> list[str]:
        return self._admission.ahead(self)

    def leave(self) -> None:
        self._admission.leave(self)
