"""Measures a running studio as its listeners meet it: first sound, speed, gaps, start and memory."""
