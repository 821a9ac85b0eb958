"""Evaluation across many fine-tuning runs."""
