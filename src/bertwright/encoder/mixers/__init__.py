"""How places exchange information: one file each."""

from bertwright.encoder.mixers.attention import AttentionChoice
from bertwright.encoder.mixers.fixed import FixedPatterns
from bertwright.encoder.mixers.lstm import LstmChoice
from bertwright.encoder.mixers.mixer import Mixer
from bertwright.encoder.mixers.random_features import RandomFeatures

__all__ = ["AttentionChoice", "FixedPatterns", "LstmChoice", "Mixer", "RandomFeatures"]
