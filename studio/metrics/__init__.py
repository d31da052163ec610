"""Prometheus metrics: names.py declares all, exporter.py fills them from the engine's snapshots."""
