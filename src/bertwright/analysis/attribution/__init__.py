"""Which places a state or an answer comes from, by gradients."""

from bertwright.analysis.attribution.answers import AnswerAttribution
from bertwright.analysis.attribution.mixing import TokenMixing

__all__ = ["AnswerAttribution", "TokenMixing"]
