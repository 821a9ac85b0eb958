"""The encoder and its axes: from tokens to hidden states."""
