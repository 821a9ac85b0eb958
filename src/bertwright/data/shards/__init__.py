"""Prepared data sets on disk."""
