"""Attention and other token mixers."""
