"""Optimisers: one file for each family."""
