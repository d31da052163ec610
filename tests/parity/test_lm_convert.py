"""The official speech LM file becomes a folder that vLLM loads: values kept, layout merged, faults named."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from studio.errors import CheckpointError
from studio.models.speech_lm.convert import convert_checkpoint, read_layout

CONFIG = Path(__file__).parents[1] / "fixtures" / "mini_qwen_config.json"
STACK = "llm.model.model."


@pytest.fixture
def tensors(weights) -> dict[str, torch.Tensor]:
    return dict(weights("mini", "llm"))


@pytest.fixture
def convert(tmp_path):
    """Save a table of tensors as llm.pt and convert it."""

    def run(table, name="llm.pt", config=CONFIG):
        path = tmp_path / name
        (save_file if name.endswith("safetensors") else torch.save)(table, path)
        return convert_checkpoint(path, config, tmp_path / "cache")

    return run


def assert_same_values(folder, tensors):
    got = load_file(folder / "model.safetensors")
    merged = torch.cat([
        tensors["speech_embedding.weight"], tensors["llm_embedding.weight"],
        tensors[STACK + "embed_tokens.weight"],
    ])  # fmt: skip
    assert torch.equal(got.pop("model.embed_tokens.weight"), merged)
    assert torch.equal(got.pop("lm_head.weight"), tensors["llm_decoder.weight"])
    assert torch.equal(got.pop("lm_head.bias"), tensors["llm_decoder.bias"])
    for name, value in got.items():
        assert torch.equal(value, tensors["llm.model." + name]), name
    assert len(got) == len([n for n in tensors if n.startswith(STACK)]) - 1


def test_every_value_arrives_in_the_merged_layout(convert, tensors):
    converted = convert(tensors)
    assert_same_values(converted.folder, tensors)
    layout = converted.layout
    assert (layout.speech_codes, layout.text_ids, layout.end_ids) == (243, 512, (243, 244, 245))
    assert read_layout(converted.folder) == layout


def test_config_names_our_class_the_merged_vocabulary_and_keeps_the_sizes(convert, tensors):
    config = json.loads((convert(tensors).folder / "config.json").read_text())
    given = json.loads(CONFIG.read_text())
    assert config["architectures"] == ["CosyVoice2SpeechLM"]
    assert config["vocab_size"] == 243 + 3 + 2 + 512
    assert config["tie_word_embeddings"] is False
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "rope_theta", "rms_norm_eps"):
        assert config[name] == given[name]


def test_half_precision_stays_half(convert, tensors):
    half = {k: v.half() for k, v in tensors.items()}
    converted = convert(half)
    assert_same_values(converted.folder, half)
    with safe_open(converted.folder / "model.safetensors", "pt") as opened:
        assert {opened.get_slice(n).get_dtype() for n in opened.keys()} == {"F16"}  # noqa: SIM118


def test_quantised_layers_pass_as_they_are_where_the_config_says_how(convert, tensors, tmp_path):
    """AWQ's and GPTQ's packed layers are vLLM's to read; our own tables stay in floats."""
    linear = [n for n in tensors if ".layers." in n and n.endswith("proj.weight")]
    packed = {n: v for n, v in tensors.items() if n not in linear}
    for name in linear:
        packed[name.replace("weight", "qweight")] = torch.arange(8, dtype=torch.int32).reshape(2, 4)
        packed[name.replace("weight", "scales")] = torch.ones(2, 4, dtype=torch.float16)
    stated = json.loads(CONFIG.read_text()) | {"quantization_config": {"quant_method": "awq", "bits": 4}}
    config = tmp_path / "config.json"
    config.write_text(json.dumps(stated))
    for file in ("llm.pt", "llm.safetensors"):
        folder = convert(packed, file, config).folder
        assert_same_values(folder, packed)
        assert json.loads((folder / "config.json").read_text())["quantization_config"]["quant_method"] == "awq"
    with pytest.raises(CheckpointError, match=r"proj\.weight is missing"):
        convert(packed)  # of a config that does not say so


def test_safetensors_input_gives_the_same_values(convert, tensors):
    tensors.pop("llm.model.lm_head.weight")  # tied; safetensors files leave it out
    assert_same_values(convert(tensors, "llm.safetensors").folder, tensors)


def test_an_old_unzipped_pickle_is_read_too(tmp_path, tensors):
    torch.save(tensors, tmp_path / "llm.pt", _use_new_zipfile_serialization=False)
    assert_same_values(convert_checkpoint(tmp_path / "llm.pt", CONFIG, tmp_path / "cache").folder, tensors)


def test_the_same_content_is_converted_once(convert, tensors):
    first = convert(tensors)
    before = (first.folder / "model.safetensors").stat().st_mtime_ns
    assert convert(tensors) == first
    assert (first.folder / "model.safetensors").stat().st_mtime_ns == before


def test_other_content_gets_another_folder(convert, tensors):
    first = convert(tensors).folder
    tensors["llm_decoder.bias"] = tensors["llm_decoder.bias"] + 1
    assert convert(tensors).folder != first


def test_a_converted_folder_on_a_read_only_disk_is_used(convert, tensors, tmp_path):
    folder = convert(tensors).folder
    for path in (*folder.iterdir(), folder, folder.parent):
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        assert convert(tensors).folder == folder
    finally:
        for path in (folder.parent, folder):
            path.chmod(0o755)


def test_a_broken_conversion_leaves_nothing_behind(convert, tensors, tmp_path, monkeypatch):
    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("studio.models.speech_lm.convert.write_safetensors", no_space)
    with pytest.raises(CheckpointError, match=r"cannot be kept in .* \(No space left on device\).*--cache-dir"):
        convert(tensors)
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_a_killed_conversion_left_is_swept_but_not_what_may_still_be_written(convert, tensors, tmp_path):
    old, young = (tmp_path / "cache" / f".speech-lm-{name}" for name in ("old", "young"))
    for folder in (old, young):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    convert(tensors)
    assert not old.exists() and young.exists()


def test_too_full_a_disk_is_told_before_anything_is_written(convert, tensors, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(CheckpointError, match=r"needs .* GB in .*; 0\.0 GB are free"):
        convert(tensors)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_conversion_that_another_process_finished_first_is_taken(convert, tensors, tmp_path, monkeypatch):
    ready = convert(tensors).folder
    aside = shutil.copytree(ready, tmp_path / "aside")
    shutil.rmtree(ready)
    rename = os.rename

    def late(source, target):
        shutil.copytree(aside, target)
        rename(source, target)

    monkeypatch.setattr("os.rename", late)
    assert_same_values(convert(tensors).folder, tensors)
    assert [p.name for p in (tmp_path / "cache").iterdir()] == [ready.name]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda t: t.pop(STACK + "layers.1.mlp.up_proj.weight"), "layers.1.mlp.up_proj.weight is missing"),
        (lambda t: t.pop("speech_embedding.weight"), "speech_embedding.weight is missing"),
        (
            lambda t: t.update({"llm_decoder.bias": torch.zeros(7)}),
            r"llm_decoder.bias has shape \[7\], expected \[246\]",
        ),
        (
            lambda t: t.update({STACK + "layers.2.input_layernorm.weight": torch.zeros(64)}),
            "layers.2.* is not part",
        ),
        (
            lambda t: t.update({"llm_embedding.weight": torch.zeros(2, 64, dtype=torch.int32)}),
            "llm_embedding.* holds",
        ),
        (
            lambda t: t.update({STACK + "embed_tokens.weight": torch.zeros(500, 64)}),
            "embed_tokens.* has shape",
        ),
    ],
)
def test_the_first_tensor_that_does_not_fit_is_named(convert, tensors, fault, words):
    fault(tensors)
    with pytest.raises(CheckpointError, match=words):
        convert(tensors)


def test_a_file_cut_short_is_named(tmp_path, tensors):
    for name, save in (("llm.pt", torch.save), ("llm.safetensors", save_file)):
        path = tmp_path / name
        save({k: v.clone() for k, v in tensors.items()}, path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(CheckpointError, match=rf"{name} in .* is cut short or damaged. Fetch it again"):
            convert_checkpoint(path, CONFIG, tmp_path / "cache")


def test_code_in_a_pickle_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "hacked"),))

    torch.save({"llm_decoder.bias": Evil()}, tmp_path / "llm.pt")
    with pytest.raises(CheckpointError, match=r"holds code \(posix\.mkdir\)"):
        convert_checkpoint(tmp_path / "llm.pt", CONFIG, tmp_path / "cache")
    (tmp_path / "llm.pt").write_bytes(pickle.dumps({"llm_decoder.bias": Evil()}))
    with pytest.raises(CheckpointError, match=r"holds code|damaged"):
        convert_checkpoint(tmp_path / "llm.pt", CONFIG, tmp_path / "cache")
    assert not (tmp_path / "hacked").exists()


def test_missing_files_and_broken_configs_are_named(tmp_path, convert, tensors):
    with pytest.raises(CheckpointError, match=r"llm.pt is missing"):
        convert_checkpoint(tmp_path / "llm.pt", CONFIG, tmp_path / "cache")
    with pytest.raises(CheckpointError, match=r"config.json is missing"):
        convert(tensors, config=tmp_path / "config.json")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config.json cannot be read"):
        convert(tensors, config=tmp_path / "config.json")
    (tmp_path / "config.json").write_text('{"hidden_size": 64}')
    with pytest.raises(CheckpointError, match=r"config.json cannot be read \(it has no vocab_size"):
        convert(tensors, config=tmp_path / "config.json")
    with pytest.raises(CheckpointError, match="not a converted"):
        read_layout(tmp_path)
