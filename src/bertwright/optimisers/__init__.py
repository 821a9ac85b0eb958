"""Gradients to parameters: flat buffers, and one file for each family of optimisers."""

from bertwright.optimisers.adafactor import Adafactor
from bertwright.optimisers.adam import Adam, AdamW
from bertwright.optimisers.descent import Adagrad, Sgd
from bertwright.optimisers.muon import Muon
from bertwright.optimisers.optimiser import Optimiser, Update
from bertwright.optimisers.tensorwise import Lamb, StableAdamW

__all__ = [
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Lamb",
    "Muon",
    "Optimiser",
    "Sgd",
    "StableAdamW",
    "Update",
]
