"""Looking after a running engine: what it does, what may be changed, and changing it with a way back."""
