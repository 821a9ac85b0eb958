"""How states lie in their space."""

from bertwright.analysis.geometry.contextuality import Contextuality

__all__ = ["Contextuality"]
