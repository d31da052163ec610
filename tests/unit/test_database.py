"""Databases are brought to the newest schema step by step, and never back."""

import sqlite3
from pathlib import Path

import pytest

from studio.database import open_database


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    folder = tmp_path / "schema"
    folder.mkdir()
    (folder / "0001.sql").write_text("CREATE TABLE thing (name TEXT);")
    return folder


def test_data_are_there_after_a_restart_and_a_newer_schema(schema: Path, tmp_path: Path) -> None:
    database = open_database(tmp_path / "x.sqlite", schema)
    database.execute("INSERT INTO thing VALUES ('kept')")
    database.close()
    (schema / "0002.sql").write_text("ALTER TABLE thing ADD COLUMN size INTEGER DEFAULT 3;")
    for _ in range(2):  # the second time nothing is left to do
        database = open_database(tmp_path / "x.sqlite", schema)
        assert database.execute("SELECT name, size FROM thing").fetchall() == [("kept", 3)]
        database.close()


def test_step_that_fails_leaves_the_schema_before_it(schema: Path, tmp_path: Path) -> None:
    open_database(tmp_path / "x.sqlite", schema).close()
    (schema / "0002.sql").write_text("CREATE TABLE other (name TEXT); CREATE TABLE thing (name TEXT);")
    with pytest.raises(sqlite3.OperationalError):
        open_database(tmp_path / "x.sqlite", schema)
    (schema / "0002.sql").write_text("CREATE TABLE other (name TEXT);")
    database = open_database(tmp_path / "x.sqlite", schema)
    assert database.execute("PRAGMA user_version").fetchone() == (2,)


def test_file_of_a_newer_studio_is_refused(schema: Path, tmp_path: Path) -> None:
    (schema / "0002.sql").write_text("CREATE TABLE other (name TEXT);")
    open_database(tmp_path / "x.sqlite", schema).close()
    (schema / "0002.sql").unlink()
    with pytest.raises(RuntimeError, match="update the studio"):
        open_database(tmp_path / "x.sqlite", schema)
