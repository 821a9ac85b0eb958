"""How places exchange information: one file each."""

from bertwright.encoder.mixers.attention import Attention, AttentionChoice
from bertwright.encoder.mixers.fixed import FixedPatterns
from bertwright.encoder.mixers.hashing import Hashing
from bertwright.encoder.mixers.lstm import LstmChoice
from bertwright.encoder.mixers.mixer import Mixer
from bertwright.encoder.mixers.random_features import RandomFeatures

__all__ = [
    "Attention",
    "AttentionChoice",
    "FixedPatterns",
    "Hashing",
    "LstmChoice",
    "Mixer",
    "RandomFeatures",
]
