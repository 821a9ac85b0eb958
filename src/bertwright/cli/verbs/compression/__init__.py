"""Verbs that make a model small."""
