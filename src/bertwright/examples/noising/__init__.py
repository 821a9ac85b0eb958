"""Noising: a text is damaged, and a decoder is asked for what undoes it.

Reading order: ``noising`` (the axis, and how targets lie), then one file per way: ``sentinels``,
``infilling``, ``fragment``, ``translation``.
"""

from bertwright.examples.noising.fragment import Fragment
from bertwright.examples.noising.infilling import Infilling
from bertwright.examples.noising.noising import Noising, Targets
from bertwright.examples.noising.sentinels import Sentinels
from bertwright.examples.noising.translation import Translation

__all__ = ["Fragment", "Infilling", "Noising", "Sentinels", "Targets", "Translation"]
