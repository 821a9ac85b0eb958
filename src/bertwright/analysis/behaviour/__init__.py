"""What a model says of texts that were made to find it out."""

from bertwright.analysis.behaviour.agreement import Agreement
from bertwright.analysis.behaviour.facts import Facts
from bertwright.analysis.behaviour.malformed import MalformedInput
from bertwright.analysis.behaviour.negation import Negation

__all__ = ["Agreement", "Facts", "MalformedInput", "Negation"]
