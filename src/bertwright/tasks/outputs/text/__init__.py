"""Outputs that are generated texts."""
