"""Takes: finished speech with the settings and tokens that made it, for each user. Does not know the engine."""
