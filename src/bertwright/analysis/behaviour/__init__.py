"""What a model predicts for texts that are constructed to test it."""
