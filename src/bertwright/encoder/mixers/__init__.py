"""How places exchange information: one file each."""

from bertwright.encoder.mixers.attention import AttentionChoice, Mixer
from bertwright.encoder.mixers.fixed import FixedPatterns
from bertwright.encoder.mixers.random_features import RandomFeatures

__all__ = ["AttentionChoice", "FixedPatterns", "Mixer", "RandomFeatures"]
