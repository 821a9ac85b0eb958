"""Trace one sequence through masking and prediction."""
