"""The HTTP server: admission, batching and inference of models."""
