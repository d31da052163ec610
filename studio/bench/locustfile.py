"""The bench's load from outside, for locust: `python -m locust --host http://127.0.0.1:7860` in the repository's root.

Each of locust's users is a listener who speaks the bench's texts one after the other. Beside locust's own report,
whose response times are those of the first bytes, the figures of `figures.py` are printed as one JSON line.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import gevent
from locust import HttpUser, events, task
from locust.env import Environment
from requests.exceptions import RequestException

from studio.bench.figures import Play, row
from studio.bench.load import BYTES_PER_SECOND, PATH, Line, body_of, lines_of
from studio.bench.playback import Arrival
from studio.bench.texts import BY_SECONDS

SEEDS_OF_A_LISTENER = 10_000


@dataclass(slots=True)
class Heard:
    """What the listeners of this process have heard since the test began."""

    plays: list[Play] = field(default_factory=list)
    listeners: int = 0
    began_s: float = field(default_factory=time.monotonic)


heard = Heard()


@events.init_command_line_parser.add_listener
def add_options(parser: ArgumentParser, **_: Any) -> None:
    parser.add_argument(
        "--voice", default="", help="name or id; the library's first voice if it is not given"
    )
    parser.add_argument(
        "--text-s", type=int, default=6, choices=sorted(BY_SECONDS), help="length of the texts"
    )
    parser.add_argument(
        "--plays", type=int, default=0, help="end after so many plays of this process; 0: never"
    )
    parser.add_argument("--api-key", default="", help="the studio's key, where it has one")


@events.test_start.add_listener
def begin(**_: Any) -> None:
    global heard
    heard = Heard()


@events.test_stop.add_listener
def tell(environment: Environment, **_: Any) -> None:
    """Print the figures of the plays that this process has heard to the end."""
    failures = environment.stats.total.num_failures
    figures = row(heard.listeners, heard.plays, failures, time.monotonic() - heard.began_s)
    print(json.dumps(figures), flush=True)


class Listener(HttpUser):
    """Asks anew as soon as the last sound has come."""

    lines: Iterator[Line]

    def on_start(self) -> None:
        options = self.environment.parsed_options
        if options.api_key:
            self.client.headers["Authorization"] = f"Bearer {options.api_key}"
        voices = self.client.get("/v1/audio/voices").json()["data"]
        voice = next(v["id"] for v in voices if options.voice in ("", v["name"], v["id"]))
        self.lines = lines_of(voice, options.text_s, SEEDS_OF_A_LISTENER * heard.listeners)
        heard.listeners += 1

    @task
    def speak(self) -> None:
        sent_s = time.monotonic()
        with self.client.post(
            PATH, json=body_of(next(self.lines)), stream=True, catch_response=True
        ) as reply:
            if not reply.ok:
                reply.failure(f"{reply.status_code} {reply.text[:300]}")
                return
            try:
                arrivals = [
                    Arrival(time.monotonic() - sent_s, len(part) / BYTES_PER_SECOND)
                    for part in reply.iter_content(None)
                ]
            except RequestException as error:
                reply.failure(f"the reply broke off: {error}")
                return
            if not arrivals:
                reply.failure("the reply holds no sound")
                return
            prebuffer_s = float(reply.headers.get("X-Prebuffer-Ms", 0)) / 1000
            heard.plays.append(Play(tuple(arrivals), time.monotonic() - sent_s, prebuffer_s))
        if len(heard.plays) == self.environment.parsed_options.plays:
            gevent.spawn(self.environment.runner.quit)  # in a greenlet of its own, for it ends this one
