"""Holds our code against golden fixtures: `python -m studio.parity FOLDER`, and tests/parity by the same code."""
