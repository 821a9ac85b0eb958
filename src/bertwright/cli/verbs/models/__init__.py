"""Verbs for the use of a model."""
