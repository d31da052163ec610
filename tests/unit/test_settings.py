"""Settings come from flags, environment and file, and a wrong name never passes."""

from pathlib import Path

import pytest

from studio.errors import SettingsError
from studio.settings import Settings, extra, gpu_defaults, load, table


def test_flag_wins_over_environment_wins_over_file(tmp_path: Path) -> None:
    config = tmp_path / "studio.toml"
    config.write_text("port = 1\nqueue_size = 2\ntop_k = 3\n")
    found = load(["--config", str(config), "--port=9"], {"STUDIO_PORT": "8", "STUDIO_QUEUE_SIZE": "7"})
    assert (found.port, found.queue_size, found.top_k) == (9, 7, 3)


def test_hyphens_and_underscores_are_the_same_flag() -> None:
    assert load(["--max-num-seqs", "3"], {}).max_num_seqs == load(["--max_num_seqs=3"], {}).max_num_seqs == 3


@pytest.mark.parametrize(("argv", "streams"), [
    ([], 128), (["--device", "cpu"], 16), (["--max-num-seqs", "16"], 16), (["--device", "cuda"], 128),
])  # fmt: skip
def test_a_gpu_serves_more_at_once_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], streams: int
) -> None:
    monkeypatch.setattr("studio.settings.find_device", lambda: "cuda")
    assert load(argv, {}).max_num_seqs == streams


@pytest.mark.parametrize(("argv", "environ", "graphs"), [
    (["--device", "cuda"], {}, "all"), (["--device", "cpu"], {}, "decode"),
    (["--device", "cuda", "--lm-graphs", "decode"], {}, "decode"),
    (["--device", "cuda"], {"STUDIO_LM_GRAPHS": "pieces"}, "pieces"),
])  # fmt: skip
def test_whole_steps_of_the_lm_are_graphs_on_a_gpu_unless_told_otherwise(
    argv: list[str], environ: dict[str, str], graphs: str
) -> None:
    assert load(argv, environ).lm_graphs == graphs


def test_every_default_of_a_gpu_is_a_value_of_its_setting() -> None:
    assert Settings.model_validate(gpu_defaults()).model_dump(include=set(gpu_defaults())) == gpu_defaults()


def test_a_gpu_lets_one_address_ask_for_all_that_the_lm_takes_at_once() -> None:
    found = load(["--device", "cuda"], {})
    assert min(found.max_running, found.max_per_client) >= found.max_num_seqs


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


def test_an_empty_value_leaves_a_setting_unset_that_may_be_so() -> None:
    found = load(["--top-p", ""], {"STUDIO_TOP_K": ""})
    assert (found.top_p, found.top_k) == (None, None)
    with pytest.raises(SettingsError, match="max_running"):
        load([], {"STUDIO_MAX_RUNNING": ""})


def test_every_setting_says_what_it_does_and_when_it_acts() -> None:
    for name, info in table().items():
        assert info.description and info.description.endswith("."), name
        assert extra(info, "group") and extra(info, "applies"), name


def test_a_space_listens_on_all_addresses_unless_told_otherwise() -> None:
    assert load([], {}).host == "127.0.0.1"
    assert load([], {"SPACE_ID": "me/studio"}).host == "0.0.0.0"
    assert load(["--host", "127.0.0.1"], {"SPACE_ID": "me/studio"}).host == "127.0.0.1"

SPACE = {
    "SPACE_ID": "me/studio", "OPENID_PROVIDER_URL": "https://huggingface.co", "OAUTH_CLIENT_ID": "app",
    "OAUTH_CLIENT_SECRET": "s", "OAUTH_SCOPES": "openid profile",
}  # fmt: skip


def test_a_space_with_oauth_brings_its_provider_but_no_administrator() -> None:
    found = load([], SPACE)
    assert (found.oidc_issuer, found.oidc_client_id) == ("https://huggingface.co", "app")
    assert (found.oidc_client_secret, found.oidc_scopes, found.admins()) == ("s", "openid profile", ())
    assert load([], {name: value for name, value in SPACE.items() if name != "SPACE_ID"}).oidc_issuer == ""
    own = load(["--oidc-issuer", "https://id.example", "--oidc-client-id", "mine"], SPACE)
    assert (own.oidc_client_id, own.oidc_client_secret) == ("mine", "")


def test_administrators_are_claims_and_values() -> None:
    found = load(["--oidc-admins= sub=auth0|1=2, groups=ops,"], {})
    assert found.admins() == (("sub", "auth0|1=2"), ("groups", "ops"))
    assert "oidc_client_secret" not in found.for_worker()


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--oidc-issuer", "http://id.example", "--oidc-client-id", "x"], "oidc_issuer"),
        (["--oidc-issuer", "id.example", "--oidc-client-id", "x"], "oidc_issuer"),
        (["--oidc-issuer", "https://[id", "--oidc-client-id", "x"], "oidc_issuer"),
        (["--oidc-issuer", "https://id.example"], "oidc_client_id"),
        (["--oidc-admins", "ada"], "ada"),
        (["--oidc-admins", "sub="], "sub"),
        (["--oidc-admins", "=ada"], "ada"),
    ],
)
def test_a_sign_in_that_cannot_work_stops_the_start(argv: list[str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        load(argv, {})


def test_further_models_are_names_and_their_places() -> None:
    known = load(["--models", "cv3=/models/cv3, tuned/a=FunAudioLLM/CosyVoice2-0.5B"], {}).further_models()
    assert known == {"cv3": "/models/cv3", "tuned/a": "FunAudioLLM/CosyVoice2-0.5B"}
    assert load([], {}).further_models() == {}


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--models", "cv3"], "cv3"),
        (["--models", "=folder"], "names no checkpoint"),
        (["--models", "a b=folder"], "a b"),
        (["--models", "one=a,one=b"], "one"),
        (["--models", "one=a", "--served-model-name", "one"], "one"),
    ],
)
def test_models_without_a_place_or_with_a_name_of_another_are_refused(flags: list[str], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        load(flags, {})
