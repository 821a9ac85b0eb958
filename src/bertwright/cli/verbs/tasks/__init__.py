"""Verbs for tasks."""
