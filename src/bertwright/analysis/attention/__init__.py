"""Attention as a picture: where it goes, and whether a head does one thing."""

from bertwright.analysis.attention.clusters import HeadClusters
from bertwright.analysis.attention.entropy import AttentionEntropy
from bertwright.analysis.attention.explaining import AttentionExplains
from bertwright.analysis.attention.patterns import AttentionPatterns
from bertwright.analysis.attention.rollout import AttentionRollout
from bertwright.analysis.attention.shares import AttentionShares
from bertwright.analysis.attention.slopes import AttentionSlopes

__all__ = [
    "AttentionEntropy",
    "AttentionExplains",
    "AttentionPatterns",
    "AttentionRollout",
    "AttentionShares",
    "AttentionSlopes",
    "HeadClusters",
]
