"""Smaller vocabularies and embeddings."""
