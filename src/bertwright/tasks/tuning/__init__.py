"""Evaluation over many fine-tuning runs."""
