"""Verbs for studies."""
