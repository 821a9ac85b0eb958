"""The HTTP server: admission control, batching and inference."""
