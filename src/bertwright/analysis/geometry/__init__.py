"""The geometry of hidden states."""
