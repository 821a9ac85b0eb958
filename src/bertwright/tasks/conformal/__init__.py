"""Predictions with a guarantee: sets and intervals of known coverage, and abstention."""
