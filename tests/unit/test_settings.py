"""Settings come from flags, environment and file, and a wrong name never passes."""

from pathlib import Path

import pytest

from studio.errors import SettingsError
from studio.settings import extra, load, table


def test_flag_wins_over_environment_wins_over_file(tmp_path: Path) -> None:
    config = tmp_path / "studio.toml"
    config.write_text("port = 1\nqueue_size = 2\ntop_k = 3\n")
    found = load(["--config", str(config), "--port=9"], {"STUDIO_PORT": "8", "STUDIO_QUEUE_SIZE": "7"})
    assert (found.port, found.queue_size, found.top_k) == (9, 7, 3)


def test_hyphens_and_underscores_are_the_same_flag() -> None:
    assert load(["--max-num-seqs", "3"], {}).max_num_seqs == load(["--max_num_seqs=3"], {}).max_num_seqs == 3


@pytest.mark.parametrize(
    ("argv", "environ", "nearest"),
    [
        (["--prot", "1"], {}, "--port"),
        ([], {"STUDIO_MAX_NUM_SEQ": "3"}, "STUDIO_MAX_NUM_SEQS"),
    ],
)
def test_unknown_name_is_refused_with_the_nearest(
    argv: list[str], environ: dict[str, str], nearest: str
) -> None:
    with pytest.raises(SettingsError, match=f"Did you mean {nearest}"):
        load(argv, environ)


def test_unknown_key_of_the_file_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "studio.toml"
    config.write_text("quue_size = 2\n")
    with pytest.raises(SettingsError, match="queue_size"):
        load(["--config", str(config)], {})


@pytest.mark.parametrize(
    "argv", [["--port", "x"], ["--top-p", "7"], ["--device", "tpu"], ["--config", "/nowhere.toml"], ["word"]]
)
def test_impossible_value_is_refused(argv: list[str]) -> None:
    with pytest.raises(SettingsError):
        load(argv, {})


def test_every_setting_says_what_it_does_and_when_it_acts() -> None:
    for name, info in table().items():
        assert info.description and info.description.endswith("."), name
        assert extra(info, "group") and extra(info, "applies"), name


def test_a_space_listens_on_all_addresses_unless_told_otherwise() -> None:
    assert load([], {}).host == "127.0.0.1"
    assert load([], {"SPACE_ID": "me/studio"}).host == "0.0.0.0"
    assert load(["--host", "127.0.0.1"], {"SPACE_ID": "me/studio"}).host == "127.0.0.1"
