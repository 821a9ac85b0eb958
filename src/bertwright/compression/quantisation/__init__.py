"""Models of few bits: learned so, measured for it."""

from bertwright.compression.quantisation.granularity import Granularity
from bertwright.compression.quantisation.observers import Observer
from bertwright.compression.quantisation.quantised import Activations, Quantised, unrounded

__all__ = ["Activations", "Granularity", "Observer", "Quantised", "unrounded"]
