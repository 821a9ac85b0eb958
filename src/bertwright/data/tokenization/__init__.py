"""Tokenizers, words and sentences."""
