"""Published ways to teach a small model in pre-training, a file each, and who teaches so."""
