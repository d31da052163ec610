"""CosyVoice Studio: zero-shot voice cloning in the browser on one shared engine."""

__version__ = "0.1.0"
