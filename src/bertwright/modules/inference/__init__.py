"""Linear layers for inference on a CPU."""
