"""What runs beside what: real engines never meet, and whatever they share is started once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.conftest import TESTS, group_of


def a_test(path: str, *fixtures: str, **module: object) -> pytest.Item:
    return SimpleNamespace(path=TESTS / path, fixturenames=fixtures, module=SimpleNamespace(**module))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("item", "group"),
    [
        (a_test("engine/test_overload.py"), "engine"),
        (a_test("browser/test_page.py", "studio", "running_studio"), "engine"),
        (a_test("browser/test_official_layout.py", RealStudio=object), "engine"),
        (a_test("browser/test_speak.py", "fakes"), "browser/test_speak.py"),
        (a_test("api/test_admin.py"), "api/test_admin.py"),
        (a_test("api/test_real_speech.py", RealStudio=object), "engine"),
        (a_test("unit/test_admin.py"), "unit/test_admin.py"),
    ],
)
def test_whoever_starts_or_asks_a_real_engine_is_in_its_group(item: pytest.Item, group: str) -> None:
    assert group_of(item) == group
