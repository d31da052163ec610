"""Which fixture is run by what, and what came of all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from studio.parity.compare import Line
from studio.parity.fixtures import FixtureMissing, Fixtures
from studio.parity.flow import run_encoder, run_estimator, run_flow, run_start_noise
from studio.parity.frontend import run_frontend
from studio.parity.speech_lm import run_llm, run_ras
from studio.parity.stream import run_session
from studio.parity.streamed_text import run_bistream
from studio.parity.text import run_text
from studio.parity.vocoder import run_hift, run_source

RUNNERS: dict[str, Callable[[Fixtures, str], Iterator[Line]]] = {
    "frontend": run_frontend,
    "encoder": run_encoder,
    "estimator": run_estimator,
    "flow": run_flow,
    "rand_noise": run_start_noise,
    "hift": run_hift,
    "source": run_source,
    "llm": run_llm,
    "ras": run_ras,
    "stream_session": run_session,
    "bistream": run_bistream,
    "text": run_text,
}


def run_fixture(fixtures: Fixtures, name: str) -> Iterator[Line]:
    """The lines of one fixture; what is missing, also a runner, is a line too."""
    run = next((RUNNERS[kind] for kind in sorted(RUNNERS, key=len, reverse=True) if _is(name, kind)), None)
    if run is None:
        yield Line(name, "", "missing", "no runner for this kind of fixture")
        return
    try:
        yield from run(fixtures, name)
    except FixtureMissing as error:
        yield Line(name, "", "missing", str(error))
    except KeyError as error:
        yield Line(name, "", "missing", f"{error} is not in the fixture")
    except Exception as error:  # of weights that do not fit, or of ours: the other fixtures are run all the same
        yield Line(name, "", "FAIL", f"{type(error).__name__}: {error}")


def _is(name: str, kind: str) -> bool:
    """NN_kind or NN_kind_SIZE."""
    return re.fullmatch(rf"\d\d_{kind}(_[a-z0-9]+)?", name) is not None


def exit_status(lines: list[Line]) -> int:
    """0 all passed, 1 something differs, 2 something is missing (also: there is nothing to run)."""
    verdicts = {line.verdict for line in lines}
    if "FAIL" in verdicts:
        return 1
    return 2 if "missing" in verdicts or not lines else 0
