"""Gradients to parameters: flat buffers, and one file for each family of optimisers."""

from bertwright.optimisers.adam import Adam, AdamW
from bertwright.optimisers.muon import Muon
from bertwright.optimisers.optimiser import Optimiser, Update

__all__ = ["Adam", "AdamW", "Muon", "Optimiser", "Update"]
