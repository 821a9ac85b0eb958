"""Verbs for the formats of other libraries."""
