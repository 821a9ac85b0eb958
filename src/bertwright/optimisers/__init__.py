"""Gradients to parameters: flat buffers, and one file for each family of optimisers."""
