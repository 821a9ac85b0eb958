"""Verbs for pre-training."""
