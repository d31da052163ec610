"""A checkpoint's own description: ours, the official kind with its tags, and broken ones."""

from pathlib import Path

import pytest

from studio.checkpoint import FILE, HASHED_END_BYTES, VOICE_ENCODERS, fingerprint, read_checkpoint
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
