"""Comparison of models of one task as they are deployed: score, size and latency."""
