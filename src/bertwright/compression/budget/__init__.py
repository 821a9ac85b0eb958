"""Compression to a budget: the best model that is small and fast enough."""
