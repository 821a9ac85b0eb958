"""Phrases and entities of documents."""
