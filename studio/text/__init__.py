"""Text to what the speech LM reads: normalise, cut into segments, tokenize."""
