"""The voice library: who can be spoken as. Does not know the engine."""
