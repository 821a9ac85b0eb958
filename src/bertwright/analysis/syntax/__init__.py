"""Whether a model knows how sentences are built, and where."""

from bertwright.analysis.syntax.attention_or_states import AttentionOrStates
from bertwright.analysis.syntax.attention_parser import AttentionParser
from bertwright.analysis.syntax.coreference import Coreference
from bertwright.analysis.syntax.features import AttentionFeatures
from bertwright.analysis.syntax.relation_heads import RelationHeads

__all__ = [
    "AttentionFeatures",
    "AttentionOrStates",
    "AttentionParser",
    "Coreference",
    "RelationHeads",
]
