"""Says what is installed, what fits, what the GPU offers, whether the checkpoint is whole, and speaks a sentence."""
