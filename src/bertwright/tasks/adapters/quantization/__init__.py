"""Quantization-aware training of weights and activations."""

from bertwright.tasks.adapters.quantization.config import ActivationQuantization, Quantization
from bertwright.tasks.adapters.quantization.granularity import Granularity
from bertwright.tasks.adapters.quantization.observers import ObserverConfig

__all__ = ["ActivationQuantization", "Granularity", "ObserverConfig", "Quantization"]
