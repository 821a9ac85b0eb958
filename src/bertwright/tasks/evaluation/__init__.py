"""Evaluation of fine-tuned models."""
