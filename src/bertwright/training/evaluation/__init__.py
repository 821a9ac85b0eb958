"""Evaluation of pre-trained models on held-out text."""
