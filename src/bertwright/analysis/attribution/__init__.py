"""Which places a state or an answer comes from, by gradients and by attention."""

from bertwright.analysis.attribution.answers import AnswerAttribution
from bertwright.analysis.attribution.flow import AttentionFlow
from bertwright.analysis.attribution.learned_masks import LearnedMasks
from bertwright.analysis.attribution.mixing import TokenMixing

__all__ = ["AnswerAttribution", "AttentionFlow", "LearnedMasks", "TokenMixing"]
