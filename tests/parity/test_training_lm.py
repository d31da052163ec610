"""The speech LM's training: text and batches are right, a few steps learn, and what is saved can be served."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from studio.models.speech_lm.qwen2 import SpeechLm, SpeechLmSizes
from studio.text.spoken import spoken
from studio.training import lm, lm_data, text
from studio.training.assemble import expand_codes
from studio.training.corpus import Clip
from studio.training.lm_batches import IGNORE, DocumentMaker, next_batch
from studio.training.lm_decoding import Law, draw_repetition_aware, generate, make_trials
from studio.training.stepping import load_weights

SENTENCES = (
    ("A cat sat on the mat.", "ɐ kˈæt sˈæt ɔnðə mˈæt."),
    ("The dog ran home.", "ðə dˈɔɡ ɹˈæn hˈoʊm."),
    ("Five birds sing, loudly.", "fˈaɪv bˈɜːdz sˈɪŋ, lˈaʊdli."),
)


def _clip(number: int) -> Clip:
    words, phonemes = SENTENCES[number % len(SENTENCES)]
    ids = tuple(40 + ord(c) % 60 for c in phonemes)
    durations = (4, *(1 + i % 3 for i in range(len(ids))), 4)
    return Clip(
        id=f"e{number}", lang="en", text=f"{words} {'abcdefgh'[number % 8]}", speaker=f"s{number % 4}", speed=1.0,
        samples=600 * sum(durations), ids=ids, durations=durations, phonemes=phonemes,
    )  # fmt: skip


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    clips = [_clip(n) for n in range(48)]
    tokens = lm_data.stand_in_tokens(clips, codes=50)
    readings = [lm_data.Reading(c, tokens[c.id]) for c in clips]
    path = tmp_path_factory.mktemp("lm") / "data.npz"
    data = lm_data.pack(readings, path)
    held = np.arange(len(data)) % 12 == 0
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **(arrays | {"validation": held}))
    return path, lm_data.load(path)


def test_teacher_words_are_cut_where_the_text_has_them():
    words = text.clip_words(_clip(0))
    assert [(w.read, w.said) for w in words][:6] == [
        ("ə", "ə") if text.teacher_sounds("ɐ") == "ə" else ("ə", "ɐ"), ("kˈat", "kˈat"), ("sˈat", "sˈat"),
        ("ˌɔn", "ɔn") if words[3].read.startswith("ˌ") else (words[3].read, "ɔn"), ("Də", "Də"), ("mˈat", "mˈat"),
    ]  # fmt: skip


def test_tokenizer_file_gives_the_ids_that_training_uses(tmp_path):
    sizes = SpeechLmSizes(64, 1, 1, 1, 64, text.TEXT_VOCABULARY, 50)
    text.write_tokenizer(tmp_path, sizes.qwen_config())
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.get_vocab_size() <= text.TEXT_VOCABULARY
    for line in (
        spoken("Hello, the apple isn't grokking xqzvb."),
        spoken("你好，world！长城"),
        "Ünïcode 生 ✓",
    ):
        ids = text.encode(line)
        assert tokenizer.encode(line).ids == ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == line


def test_every_sound_is_one_token():
    line = spoken("this cheap judge's vision, 装")
    assert len(text.encode(line)) == len(line) - line.count("ˈ") - line.count("ˌ")


def test_packed_documents_stay_apart_and_targets_are_the_next_token(packed):
    _, data = packed
    batch, _ = next_batch(DocumentMaker(data, seed=1), [], rows=4, width=256, most_clips=4)
    ids, target, document = batch["ids"], batch["target"], batch["document"]
    codes = len(data.codes)
    inner = (target[:, :-1] != IGNORE) & (target[:, :-1] < codes) & (document[:, :-1] == document[:, 1:])
    same = ids[:, 1:][inner] == target[:, :-1][inner]
    assert same.mean() > 0.9  # the rest are the tokens corrupted on purpose
    assert (target == codes).sum() == len(np.unique(document[document >= 0]))
    assert (document >= 0).mean() > 0.8


def test_masked_documents_give_the_losses_of_lone_ones(packed):
    _, data = packed
    sizes = SpeechLmSizes(64, 2, 1, 1, 96, text.TEXT_VOCABULARY, len(data.codes))
    model = lm.GuidedLm(sizes, dropout=0.0).eval()
    maker = DocumentMaker(data, seed=2)
    documents = [maker.document([3], [0]), maker.document([5, 9], [0, 0])]
    together = lm.pack_rows(documents, 1, 512)[0]
    losses, weights = [], []
    for part in (together, *(lm.pack_rows([d], 1, 512)[0] for d in documents)):
        losses.append(model({n: torch.from_numpy(part[n]) for n in lm.FIELDS})["speech"].item())
        weights.append(int((part["target"] != IGNORE).sum()))
    alone = (losses[1] * weights[1] + losses[2] * weights[2]) / (weights[1] + weights[2])
    assert abs(losses[0] - alone) < 1e-4


def test_a_short_run_learns_and_writes_what_loads(packed, tmp_path):
    path, data = packed
    arguments = [
        str(path), str(tmp_path), "--device", "cpu", "--minutes", "1000", "--finish-s", "1", "--max-steps", "40",
        "--hidden", "64", "--layers", "2", "--kv-heads", "1", "--ffn", "96", "--rows", "2", "--width", "256",
        "--validation-rows", "2", "--workers", "1", "--reader-s", "1", "--trials", "3", "--report-s", "1000",
        "--rate", "4e-3",
    ]  # fmt: skip
    lm.train(lm.parse(arguments))
    lines = (tmp_path / "speech_lm.jsonl").read_text().splitlines()
    assert '"done": true' in lines[-1]
    weights, meta = load_weights(tmp_path / "speech_lm.pt")
    loaded = SpeechLm(SpeechLmSizes(**meta["sizes"]))
    loaded.load_official(weights)
    model = lm.GuidedLm(loaded.sizes, 0.0).eval()
    model.lm = loaded
    held = lm.validate(model, lm.validation_batch(data, 2, 256), "cpu")
    assert held["val_speech"] < 0.9 * np.log(len(data.codes))


def test_expanded_codes_keep_the_scores_and_silence_the_rest():
    sizes = SpeechLmSizes(64, 1, 1, 1, 64, 16, speech_codes=3)
    small = SpeechLm(sizes)
    wide = expand_codes(small.official_tensors(), [1, 4, 6], speech_codes=9)
    hidden = torch.randn(5, 64)
    scores = hidden @ wide["llm_decoder.weight"].T + wide["llm_decoder.bias"]
    torch.testing.assert_close(scores[:, [1, 4, 6, 9, 10, 11]], small.scores(hidden))
    assert scores[:, [0, 2, 3, 5, 7, 8]].max() == -30.0


def test_a_recent_token_is_drawn_again_from_the_others():
    scores = torch.tensor([[9.0, 0.0, -1.0]]).repeat(64, 1)
    fresh = draw_repetition_aware(scores, torch.full((64, 10), -1), Law())
    again = draw_repetition_aware(scores, torch.zeros(64, 10, dtype=torch.long), Law())
    assert (fresh == 0).all() and (again != 0).all()


def test_rows_decoded_together_are_those_decoded_alone(packed):
    _, data = packed
    torch.manual_seed(0)
    model = SpeechLm(SpeechLmSizes(64, 2, 1, 1, 96, text.TEXT_VOCABULARY, len(data.codes))).eval()
    trials = make_trials(data, 3)
    greedy = Law(top_k=1, window=0)
    together = generate(model, trials, greedy)
    assert together == [generate(model, [trial], greedy)[0] for trial in trials]
