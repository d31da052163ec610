"""A script as clients see it: lines with state, takes and times; and its lines with takes, ready for export."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial

from studio.audio.loudness import Loudness
from studio.library.store import VoiceStore
from studio.messages import render
from studio.script.export import TakenLine
from studio.script.runner import ScriptRunner
from studio.script.store import Line, Script, ScriptStore, fault_of
from studio.script.timing import Voiced, starts
from studio.speech import SAMPLE_RATE_HZ
from studio.takes.store import Take, TakeStore

STATES = ("new", "waiting", "running", "done", "failed")


class ScriptView:
    """Joins scripts with their takes and voices; changes nothing."""

    def __init__(self, scripts: ScriptStore, takes: TakeStore, voices: VoiceStore, runner: ScriptRunner) -> None:
        self._scripts = scripts
        self._takes = takes
        self._voices = voices
        self._runner = runner

    def brief(self, script: Script) -> dict[str, object]:
        """Without its lines: what a list of scripts or a look at the progress needs."""
        return self._brief(script, self._scripts.lines(script))

    def whole(self, script: Script, language: str) -> dict[str, object]:
        """With its lines; times are those of an export now."""
        lines = self._scripts.lines(script)
        takes: dict[str, list[Take]] = defaultdict(list)
        for take in self._takes.of_lines([line.id for line in lines]):
            takes[take.line].append(take)
        chosen = [(line, take) for line in lines for take in takes[line.id] if take.id == line.take]
        times = starts([_voiced(line, take) for line, take in chosen])
        begins = {line.id: start / SAMPLE_RATE_HZ for (line, _), start in zip(chosen, times, strict=True)}
        names = {voice.id: voice.name for voice in self._voices.all()}
        wires = [
            self._line(line, takes[line.id], begins.get(line.id), names, language) for line in lines
        ]
        return {**self._brief(script, lines), "lines": wires}

    def taken(self, script: Script) -> list[TakenLine]:
        """The lines that have a take, in order of hearing."""
        lines = self._scripts.lines(script)
        takes = {take.id: take for take in self._takes.of_lines([line.id for line in lines])}
        return [self._taken(line, takes[line.take]) for line in lines if line.take in takes]

    def _taken(self, line: Line, take: Take) -> TakenLine:
        return TakenLine(
            line.position + 1, line.speaker, line.text, line.pause_s, line.at_s, _samples(take),
            Loudness(take.lufs, take.peak_dbfs), partial(self._takes.samples, take),
        )  # fmt: skip

    def _state(self, line: Line) -> str:
        return "running" if line.status == "waiting" and self._runner.is_speaking(line) else line.status

    def _brief(self, script: Script, lines: list[Line]) -> dict[str, object]:
        counts = Counter(self._state(line) for line in lines)
        return {
            "id": script.id,
            "object": "audio.script",
            "title": script.title,
            "created_at": round(script.created_s, 3),
            "status": "running" if counts["waiting"] or counts["running"] else "idle",
            "total": len(lines),
            "counts": {state: counts[state] for state in STATES},
            "with_take": sum(bool(line.take) for line in lines),
        }

    def _line(
        self, line: Line, takes: list[Take], start_s: float | None, names: dict[str, str | None], language: str
    ) -> dict[str, object]:
        fault = fault_of(line)
        error = {"code": fault.key, "message": render(fault.key, language, **fault.values)} if fault else None
        seconds = next((take.audio_s for take in takes if take.id == line.take), 0.0)
        return {
            "id": line.id,
            "number": line.position + 1,
            "speaker": line.speaker,
            "voice": {"id": line.voice, "name": names[line.voice]} if line.voice in names else None,
            "input": line.text,
            "pause_s": line.pause_s,
            "at_s": line.at_s,
            "seed": line.seed,
            "status": self._state(line),
            "error": error,
            "take": line.take or None,
            "takes": [{"id": t.id, "seconds": round(t.audio_s, 3), "seed": t.seed} for t in takes],
            "start_s": None if start_s is None else round(start_s, 3),
            "end_s": None if start_s is None else round(start_s + seconds, 3),
        }


def _samples(take: Take) -> int:
    return round(take.audio_s * SAMPLE_RATE_HZ)


def _voiced(line: Line, take: Take) -> Voiced:
    return Voiced(_samples(take), line.pause_s, line.at_s)
