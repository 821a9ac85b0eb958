"""Noising: corruption of a text that a decoder reconstructs.

Reading order: ``noising`` (the axis), then one file per method: ``sentinels``, ``infilling``,
``fragment``, ``deletion``, ``translation``.
"""

from bertwright.batches.noising.deletion import Deletion
from bertwright.batches.noising.fragment import Fragment
from bertwright.batches.noising.infilling import Infilling
from bertwright.batches.noising.noising import Noising
from bertwright.batches.noising.sentinels import Sentinels
from bertwright.batches.noising.translation import Translation

__all__ = ["Deletion", "Fragment", "Infilling", "Noising", "Sentinels", "Translation"]
