"""Compression to a budget: find the best model that is small and fast enough."""
