"""Sequences to states: the encoder and its axes."""
