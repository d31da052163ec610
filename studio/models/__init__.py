"""Networks of the checkpoint: modules and their state; no threads, no HTTP."""
