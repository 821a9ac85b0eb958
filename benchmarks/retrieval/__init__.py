"""Retrieval over WordNet: scores, size and speed of every kind of search index."""
