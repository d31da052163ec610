"""Fetches a checkpoint from Hugging Face or ModelScope: its listing, its files, nothing that is not read."""
