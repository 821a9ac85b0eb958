"""Questions asked of a text: one file each."""

from bertwright.objectives.causal import Causal
from bertwright.objectives.denoising import Denoising
from bertwright.objectives.generated import Generated
from bertwright.objectives.masked import Masked
from bertwright.objectives.objective import Objective
from bertwright.objectives.permutation import Permutation
from bertwright.objectives.ponder import Ponder
from bertwright.objectives.replaced_token import ReplacedToken
from bertwright.objectives.sentence_relation import (
    NextSentence,
    PairQuestion,
    SentenceOrder,
    SentenceRelation,
)
from bertwright.objectives.span_boundary import SpanBoundary
from bertwright.objectives.word_order import WordOrder

__all__ = [
    "Causal",
    "Denoising",
    "Generated",
    "Masked",
    "NextSentence",
    "Objective",
    "PairQuestion",
    "Permutation",
    "Ponder",
    "ReplacedToken",
    "SentenceOrder",
    "SentenceRelation",
    "SpanBoundary",
    "WordOrder",
]
