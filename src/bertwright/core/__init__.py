"""Foundations without torch: configuration, errors, files, random numbers, statistics."""
