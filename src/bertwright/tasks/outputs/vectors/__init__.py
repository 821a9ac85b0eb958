"""Outputs that are vectors of texts."""
