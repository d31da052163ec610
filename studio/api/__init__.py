"""The HTTP interface: OpenAI's speech routes, voices, health and metrics. Wire shapes stay in here."""
