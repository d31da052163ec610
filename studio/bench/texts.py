"""Sentences of ours to load a studio with; each is of a length, so that figures can be compared."""

from __future__ import annotations

BY_SECONDS = {
    3: (
        "The morning train was late again today.",
        "Please close the window before you leave.",
        "We had soup and fresh bread for lunch.",
        "My sister plays the violin every evening.",
    ),
    6: (
        "The quick brown fox jumps over the lazy dog, and then it runs away into the deep green forest.",
        "When the rain stopped, the children ran out to the garden and looked for snails under the leaves.",
        "She wrote a long letter to her old friend, who had moved to a small town near the sea.",
        "The library opens at nine, but the reading room upstairs stays closed until the early afternoon.",
    ),
    12: (
        "After the storm had passed, the fishermen walked down to the harbour to look at their boats. Two of them had "
        "lost a mast, and one was missing, but nobody in the village had been hurt that night.",
        "Every summer we drive to the mountains and stay in a wooden house beside a cold, clear lake. In the morning "
        "we swim, in the afternoon we climb, and in the evening we read by the fire.",
        "The old clock in the station has been slow for as long as anyone can remember. People who live here know "
        "it, and smile; strangers run up the stairs and find that they have five minutes left.",
        "He opened the heavy door, listened for a while, and then went in without turning on the light. The room "
        "smelled of dust and old paper, and somewhere behind the shelves a small bell began to ring.",
    ),
}
