"""What can be read off states by a small model, and how much of it the small model has learned by
itself."""

from bertwright.analysis.probing.description_length import DescriptionLength
from bertwright.analysis.probing.edges import EdgeProbe
from bertwright.analysis.probing.feature_layers import FeatureLayers
from bertwright.analysis.probing.identity import TokenIdentity
from bertwright.analysis.probing.linear import LinearProbe
from bertwright.analysis.probing.main_auxiliary import MainAuxiliary
from bertwright.analysis.probing.numbers import Numbers
from bertwright.analysis.probing.structural import StructuralProbe
from bertwright.analysis.probing.word_places import WordPlaces

__all__ = [
    "DescriptionLength",
    "EdgeProbe",
    "FeatureLayers",
    "LinearProbe",
    "MainAuxiliary",
    "Numbers",
    "StructuralProbe",
    "TokenIdentity",
    "WordPlaces",
]
