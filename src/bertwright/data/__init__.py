"""Readers, tokenizers, preparation and shards of text data. No module here imports torch."""
