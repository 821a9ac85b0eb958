"""Attention maps: where attention goes, and whether heads have a single function."""
