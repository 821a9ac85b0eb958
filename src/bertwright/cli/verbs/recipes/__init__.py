"""Verbs for recipes."""
