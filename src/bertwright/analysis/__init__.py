"""Analyses of what a model knows, and where."""
