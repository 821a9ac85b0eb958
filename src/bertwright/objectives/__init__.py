"""Questions asked of a text: one file each."""

from bertwright.objectives.causal import Causal
from bertwright.objectives.masked import Masked
from bertwright.objectives.next_sentence import NextSentence
from bertwright.objectives.objective import Objective

__all__ = ["Causal", "Masked", "NextSentence", "Objective"]
