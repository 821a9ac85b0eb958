"""Score, size and latency of compressed models over tasks, variants and seeds."""
