"""Training of the embedded voice: corpus, trainers and the GPU slots. Not part of the running studio."""
