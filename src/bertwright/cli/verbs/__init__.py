"""Verbs, each in the folder of the package that does its work."""
