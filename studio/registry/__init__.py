"""The checkpoints that are known, which of them are loaded, and which one a request names. See docs/decisions/0022."""
