"""Implementations of the protocols; only app.py and the command rooms choose among them."""
