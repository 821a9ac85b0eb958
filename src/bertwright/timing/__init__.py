"""Comparison of a task's models as they are deployed: score, size and latency."""
