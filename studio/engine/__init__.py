"""The engine: admission, segments, token2wav scheduling, streams, workers. No torch, no HTTP, no models."""
