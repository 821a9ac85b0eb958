"""Callbacks that act inside a training step."""
