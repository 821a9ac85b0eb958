"""Readers of text files and tables."""
