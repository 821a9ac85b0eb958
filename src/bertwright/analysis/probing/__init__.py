"""Probes: small models that predict properties of words from hidden states, with controls."""
