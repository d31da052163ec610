"""A checkpoint's own description: ours, the official kind with its tags, and broken ones."""

from pathlib import Path

import pytest

from studio.checkpoint import (
    FILE,
    FILE_3,
    HASHED_END_BYTES,
    LANGUAGES,
    LANGUAGES_3,
    VOICE_ENCODERS,
    check_files,
    fingerprint,
    read_checkpoint,
    wanted_files,
    weight_file,
)
from studio.errors import CheckpointError


def written(folder: Path, text: str) -> Path:
    (folder / FILE).write_text(text, encoding="utf-8")
    return folder


def test_ours_says_how_text_is_read(tmp_path: Path) -> None:
    text = "checkpoint: {id: tiny-1, text_frontend: spoken, languages: [en, zh], min_token_text_ratio: 0.5}\n"
    found = read_checkpoint(written(tmp_path, text))
    assert (found.id, found.text_frontend, found.languages, found.min_token_text_ratio) == (
        "tiny-1",
        "spoken",
        ("en", "zh"),
        0.5,
    )


@pytest.mark.parametrize(("file", "spoken"), [(FILE, LANGUAGES), (FILE_3, LANGUAGES_3)])
def test_official_models_speak_the_languages_of_their_version(
    tmp_path: Path, file: str, spoken: tuple[str, ...]
) -> None:
    (tmp_path / file).write_text("sample_rate: 24000\n", encoding="utf-8")
    assert read_checkpoint(tmp_path).languages == spoken
    assert set(LANGUAGES) < set(LANGUAGES_3) and len(LANGUAGES_3) == 9


def test_tags_of_the_official_file_are_read_as_plain_values_and_run_nothing(tmp_path: Path) -> None:
    text = (
        "sample_rate: 24000\nllm: !new:os.system\n    command: !ref <sample_rate>\nseed: !apply:os.abort []\n"
    )
    found = read_checkpoint(written(tmp_path, text))
    assert (found.text_frontend, found.min_token_text_ratio, found.id) == ("raw", 2.0, tmp_path.name)


@pytest.mark.parametrize(
    "text", ["checkpoint: [", "checkpoint: {idd: x}", "checkpoint: {text_frontend: magic}", "checkpoint: 3"]
)
def test_broken_description_names_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(CheckpointError, match=FILE):
        read_checkpoint(written(tmp_path, text))


def test_missing_description_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        read_checkpoint(tmp_path)


def test_fingerprint_changes_with_the_models_that_encode_voices(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(written(tmp_path, "checkpoint: {id: tiny}"))
    found = {fingerprint(checkpoint)}
    for name in VOICE_ENCODERS:
        for content in (b"a", b"b", b"a" * 3 * HASHED_END_BYTES, b"a" * (3 * HASHED_END_BYTES - 1) + b"b"):
            (tmp_path / name).write_bytes(content)
            assert fingerprint(checkpoint) == fingerprint(checkpoint)
            found.add(fingerprint(checkpoint))
    assert len(found) == 9
    (tmp_path / "flow.safetensors").write_bytes(b"no matter")
    assert fingerprint(checkpoint) in found


TOP = ("cosyvoice2.yaml", "llm.pt", "flow.pt", "hift.pt", "campplus.onnx", "speech_tokenizer_v2.onnx")
OFFICIAL = (*TOP, *(f"CosyVoice-BlankEN/{name}" for name in ("config.json", "vocab.json", "merges.txt")))


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A folder with the names of the official layout."""
    for name in OFFICIAL:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"content")
    return tmp_path


def test_whole_folder_gives_the_files_that_are_read_and_no_others(whole: Path) -> None:
    (whole / "README.md").write_text("no matter")
    (whole / "CosyVoice-BlankEN" / "model.safetensors").write_text("not read")
    assert sorted(str(p.relative_to(whole)) for p in check_files(whole)) == sorted(OFFICIAL)
    (whole / "spk2info.pt").write_bytes(b"voices")
    assert whole / "spk2info.pt" in check_files(whole)


def test_safetensors_are_taken_before_pickles() -> None:
    wanted, missing = wanted_files({*OFFICIAL, "flow.safetensors"})
    assert missing is None and "flow.safetensors" in wanted and "flow.pt" not in wanted


@pytest.mark.parametrize("name", OFFICIAL)
def test_each_missing_file_is_named(whole: Path, name: str) -> None:
    (whole / name).unlink()
    with pytest.raises(CheckpointError, match=rf"{name} is missing in .* Fetch the whole checkpoint again"):
        check_files(whole)


def test_a_pointer_and_an_empty_file_are_told_from_weights(whole: Path) -> None:
    (whole / "flow.pt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n")
    with pytest.raises(CheckpointError, match=r"flow\.pt in .* is a Git LFS pointer.*git lfs pull"):
        check_files(whole)
    (whole / "flow.pt").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"flow\.pt in .* is cut short"):
        check_files(whole)


def test_cosyvoice3_is_told_by_the_name_of_its_description(tmp_path: Path) -> None:
    (tmp_path / FILE_3).write_text("sample_rate: 24000\n")
    found = read_checkpoint(tmp_path)
    assert (found.version, found.voice_encoders[1]) == (3, "speech_tokenizer_v3.onnx")
    assert 2322 in found.silent_tokens
    names = [name.replace("cosyvoice2", "cosyvoice3").replace("_v2", "_v3") for name in OFFICIAL]
    assert wanted_files(names)[1] is None
    assert wanted_files([FILE_3])[1] == "llm.pt"


@pytest.mark.parametrize(("file", "version"), [("cosyvoice.yaml", "CosyVoice 1")])
def test_checkpoint_of_another_version_is_told(tmp_path: Path, file: str, version: str) -> None:
    (tmp_path / file).write_text("sample_rate: 22050\n")
    with pytest.raises(CheckpointError, match=rf"{file}.* a checkpoint of {version}.* Take one of CosyVoice 2"):
        read_checkpoint(tmp_path)


def test_safetensors_are_preferred_and_their_absence_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"llm.pt is missing"):
        weight_file(tmp_path, "llm")
    (tmp_path / "llm.pt").touch()
    assert weight_file(tmp_path, "llm").name == "llm.pt"
    (tmp_path / "llm.safetensors").touch()
    assert weight_file(tmp_path, "llm").name == "llm.safetensors"
