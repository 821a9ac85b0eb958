"""Checklist."""
