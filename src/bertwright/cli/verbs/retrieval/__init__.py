"""Verbs for search."""
