"""How states lie in their space."""

from bertwright.analysis.geometry.contextuality import Contextuality
from bertwright.analysis.geometry.senses import WordSenses
from bertwright.analysis.geometry.sentence_vectors import SentenceVectors

__all__ = ["Contextuality", "SentenceVectors", "WordSenses"]
