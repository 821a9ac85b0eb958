"""Verbs for text and tokenizers."""
