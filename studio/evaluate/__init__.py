"""Measures a running service: errors, likeness, quality, speed over fixed texts. Never starts the service."""
