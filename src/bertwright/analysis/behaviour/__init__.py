"""What a model predicts for texts constructed to test it."""
