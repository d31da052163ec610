"""What runs beside what: real engines never meet, and whatever they share is started once."""

from __future__ import annotations

import pytest

from tests.conftest import TESTS, group_of


@pytest.mark.parametrize(
    "file",
    [
        "engine/test_overload.py",
        "api/test_real_speech.py",
        "browser/test_official_layout.py",
        "browser/test_page.py",
    ],
)
def test_whoever_starts_or_asks_a_real_engine_is_in_its_group(file: str) -> None:
    assert group_of(TESTS / file) == "engine"


@pytest.mark.parametrize("file", ["browser/test_takes_tab.py", "api/test_admin.py", "unit/test_admin.py"])
def test_every_other_file_is_a_group(file: str) -> None:
    assert group_of(TESTS / file) == file
