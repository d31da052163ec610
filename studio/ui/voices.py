"""The list of voices as the page shows it: order, labels and what is told about a voice, in the page's language."""

from __future__ import annotations

from studio.library.starters import in_order, label, starter_entries
from studio.library.store import VoiceStore
from studio.library.voice import Voice
from studio.messages import render

Choices = list[tuple[str, str]]


def choices(store: VoiceStore, language: str) -> Choices:
    """Label and id of every voice; the first is the one to begin with."""
    return [(label(voice, language), voice.id) for voice in in_order(store, language)]


def describe(voice: Voice, language: str) -> str:
    """Markdown: what is said in the clip, then its length, source and licence."""
    if voice.origin == "preset":
        return render("page.preset", language)
    if not voice.has_clip:
        return render("page.no_clip", language)
    facts = [render("page.clip_seconds", language, seconds=voice.clip_s)]
    entry = starter_entries().get(voice.name or "") if voice.origin == "starter" else None
    if entry is not None:
        facts = [render("page.starter", language), *facts, entry["source"], entry["licence"]]
    elif voice.details:
        facts.append(voice.details)
    said = " ".join(voice.transcript.split())
    quoted = f"「{said}」" if voice.language == "zh" else f"“{said}”"
    return f"{quoted}\n\n<small>{' · '.join(facts)}</small>"
