"""How states lie in their space."""

from bertwright.analysis.geometry.contextuality import Contextuality
from bertwright.analysis.geometry.senses import WordSenses

__all__ = ["Contextuality", "WordSenses"]
