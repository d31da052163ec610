"""Whether a checkpoint folder is whole: every file there, as it was fetched, readable, and fitting the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from studio.backends.torch_rows import TorchToken2Wav
from studio.backends.torch_token2wav import load_token2wav
from studio.checkpoint import (
    FILE,
    FILE_3,
    LAYOUT,
    PRESETS,
    TOKENIZER_FOLDER,
    check_file,
    layout_of,
    read_checkpoint,
    read_lm_config,
    weight_file,
)
from studio.doctor.finding import Finding
from studio.errors import StudioError
from studio.hub.download import MANIFEST, read_manifest
from studio.models.kept_folder import refuse_full_disk
from studio.models.prompt.encoder import OnnxPromptEncoder
from studio.models.prompt.presets import read_presets
from studio.models.speech_lm.convert import check_tensors, converted_bytes, converted_folder
from studio.models.tensor_files import open_tensors
from studio.models.weights import WeightsError
from studio.speech import PROMPT_RATE_HZ
from studio.text.tokenize import load_tokenizer


class CheckpointExam:
    """One folder, looked at from its names to its numbers. cache: where its converted form lies, or will lie."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self._folder = folder
        self._cache = cache
        self._layout = layout_of({name for name in (FILE, FILE_3) if (folder / name).is_file()})
        self._codes: dict[str, int] = {}  # speech codes as each part knows them

    def findings(self) -> Iterator[Finding]:
        missing = list(self._missing())
        yield from missing or [Finding("ok", "files", f"all there in {self._folder}")]
        yield from self._as_fetched()
        known = {finding.detail for finding in missing}
        for subject, look in (
            (self._layout[0][0], self._description),
            (TOKENIZER_FOLDER, self._tokenizer),
            ("speech LM", self._speech_lm),
            ("converted", self._converted),
            ("flow and vocoder", self._token2wav),
            ("prompt encoders", self._encoders),
            (PRESETS, self._presets),
        ):
            finding = self._tried(subject, look)
            if finding.verdict == "ok" or finding.detail not in known:  # several parts may stumble over one fault
                yield finding
            known.add(finding.detail)
        if len(set(self._codes.values())) > 1:
            told = ", ".join(f"{part} {count}" for part, count in self._codes.items())
            detail = f"the parts know different numbers of speech codes ({told}): take all from one checkpoint"
            yield Finding("FAULT", "parts together", detail)

    def _missing(self) -> Iterator[Finding]:
        for row in self._layout[1:]:  # the description is told by who reads it
            name = next((name for name in row if (self._folder / name).is_file()), row[-1])
            try:
                check_file(self._folder, name)
            except StudioError as error:
                yield Finding("FAULT", name, str(error))

    def _as_fetched(self) -> Iterator[Finding]:
        """Files against the hashes that the hub listed; nothing to say of a folder that came another way."""
        try:
            listed = read_manifest(self._folder)
        except StudioError as error:
            yield Finding("FAULT", MANIFEST, str(error))
            return
        if not listed:
            return
        files = [file for file in listed if (self._folder / file.path).is_file()]
        wrong = [file.path for file in files if file.hash_of(self._folder / file.path) != file.hash]
        for path in wrong:
            yield Finding("FAULT", path, "changed since it was fetched: delete it, and the next start fetches it again")
        if not wrong:
            yield Finding("ok", "as fetched", f"{len(files)} files have the hashes that the hub listed")

    def _tried(self, subject: str, look: Callable[[], str]) -> Finding:
        try:
            return Finding("ok", subject, look())
        except (StudioError, WeightsError, OSError) as error:
            return Finding("FAULT", subject, str(error))

    def _description(self) -> str:
        found = read_checkpoint(self._folder)
        return f"{found.id}, languages {', '.join(found.languages)}"

    def _tokenizer(self) -> str:
        size = load_tokenizer(self._folder / TOKENIZER_FOLDER, 2 if self._layout is LAYOUT else 3).get_vocab_size()
        room = read_lm_config(self._folder / TOKENIZER_FOLDER / "config.json")["vocab_size"]
        if size > room:
            raise WeightsError(f"the tokenizer has {size} ids, the speech LM {room}: take both from one checkpoint")
        return f"{size} ids"

    def _speech_lm(self) -> str:
        config = read_lm_config(self._folder / TOKENIZER_FOLDER / "config.json")
        with open_tensors(weight_file(self._folder, "llm")) as source:
            layout = check_tensors(source, config)
            values = sum(int(np.prod(shape)) for shape in source.shapes.values())
        self._codes["speech LM"] = layout.speech_codes
        return f"{len(source.shapes)} tensors, {values / 1e6:.0f} M values, {layout.speech_codes} speech codes"

    def _converted(self) -> str:
        """The form that vLLM loads: there, or room for it."""
        llm, config = weight_file(self._folder, "llm"), self._folder / TOKENIZER_FOLDER / "config.json"
        for file in (llm, config):
            check_file(self._folder, str(file.relative_to(self._folder)))
        if converted_folder(llm, config, self._cache).is_dir():
            return f"in {self._cache}"
        with open_tensors(llm) as source:
            needed = converted_bytes(source)
        refuse_full_disk(self._cache, needed)
        return f"not yet; the first start writes {needed / 1e9:.1f} GB to {self._cache}"

    def _token2wav(self) -> str:
        token2wav = load_token2wav(self._folder)
        assert isinstance(token2wav, TorchToken2Wav)
        self._codes["flow"] = token2wav.speech_codes
        return f"{token2wav.speech_codes} speech codes"

    def _encoders(self) -> str:
        seconds = 2
        noise = 0.1 * np.random.default_rng(0).standard_normal(seconds * PROMPT_RATE_HZ).astype(np.float32)
        prompt = OnnxPromptEncoder(self._folder).encode(noise, PROMPT_RATE_HZ, "")
        most = min(self._codes.values(), default=int(prompt.speech_tokens.max()) + 1)
        if (largest := prompt.speech_tokens.max()) >= most:
            raise WeightsError(f"speech token {largest} of {most} codes: take all files from one checkpoint")
        return f"{len(prompt.speech_tokens)} speech tokens for {seconds} s of noise, an embedding of 192"

    def _presets(self) -> str:
        return f"{len(read_presets(self._folder)) or 'no'} preset voices"
