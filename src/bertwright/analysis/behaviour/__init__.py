"""What a model says of texts that were made to find it out."""

from bertwright.analysis.behaviour.agreement import Agreement
from bertwright.analysis.behaviour.facts import Facts
from bertwright.analysis.behaviour.malformed import MalformedInput
from bertwright.analysis.behaviour.names import Names
from bertwright.analysis.behaviour.negation import Negation
from bertwright.analysis.behaviour.pairs import PairQuestions
from bertwright.analysis.behaviour.suites import Suites
from bertwright.analysis.behaviour.triggers import Triggers

__all__ = [
    "Agreement",
    "Facts",
    "MalformedInput",
    "Names",
    "Negation",
    "PairQuestions",
    "Suites",
    "Triggers",
]
