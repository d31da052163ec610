"""What reads a prompt clip: features, speaker encoder, speech tokenizer."""
