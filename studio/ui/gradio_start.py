"""Imports Gradio in less than half the time, by leaving out what a running page never uses. Builds nothing."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager

UNUSED = "mcp"  # Gradio's server for tools; vLLM brings the package, and importing it costs a second


def import_gradio() -> None:
    """Import Gradio, if nobody did before. CPU time with Gradio 6.31 on one core: 5.4 s without this, 2.3 s with it."""
    if "gradio" in sys.modules:
        return
    with _without_stubs(), _without(UNUSED):
        import gradio

        assert gradio


@contextmanager
def _without_stubs() -> Iterator[None]:
    """Gradio writes a .pyi for editors beside each component at each import; classes without a file are passed over.

    That is half of its import, and it writes into site-packages, which may be read-only.
    """
    getfile = inspect.getfile

    def no_file_for_components(thing: object) -> str:
        if isinstance(thing, type) and thing.__module__.startswith("gradio."):
            raise OSError(f"{thing.__qualname__} needs no stub")
        return getfile(thing)  # type: ignore[arg-type]

    inspect.getfile = no_file_for_components  # type: ignore[assignment]
    try:
        yield
    finally:
        inspect.getfile = getfile


@contextmanager
def _without(package: str) -> Iterator[None]:
    """A package counts as not installed, unless it was imported before."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]
