"""What the page's own scripts and templates say is in the catalogue; the keys in Python are checked with the errors."""

from __future__ import annotations

import re
from pathlib import Path

from studio.messages import catalogue

ROOT = Path(__file__).resolve().parents[2]
SAYS = re.compile(
    r"""(?:\bsay\(|data-say(?:-label|-placeholder)?=)["']([a-z_]+\.[a-z_0-9]+)["']"""
)


def test_every_sentence_that_the_page_asks_for_is_in_the_catalogue() -> None:
    places = [*(ROOT / "assets" / "web").rglob("*.js"), *(ROOT / "assets" / "web").rglob("*.html")]
    places += (ROOT / "studio" / "ui").rglob("*.py")
    asked = {(place.name, key) for place in places for key in SAYS.findall(place.read_text(encoding="utf-8"))}
    assert asked and {(place, key) for place, key in asked if key not in catalogue("en")} == set()
