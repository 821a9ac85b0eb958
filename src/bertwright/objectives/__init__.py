"""Questions asked of a text: one file each."""

from bertwright.objectives.activation import ActivationChange, ActivationSize
from bertwright.objectives.adaptive_softmax import AdaptiveSoftmax
from bertwright.objectives.autoencoding import Autoencoding
from bertwright.objectives.capitalised import Capitalised
from bertwright.objectives.causal import Causal
from bertwright.objectives.denoising import Denoising
from bertwright.objectives.discourse_relation import DiscourseRelation
from bertwright.objectives.generated import Generated
from bertwright.objectives.masked import Masked
from bertwright.objectives.objective import Objective
from bertwright.objectives.permutation import Permutation
from bertwright.objectives.ponder import Ponder
from bertwright.objectives.reordering import Reordering
from bertwright.objectives.replaced_token import ReplacedToken
from bertwright.objectives.sentence_relation import (
    Dialogue,
    NextSentence,
    PairQuestion,
    SentenceDistance,
    SentenceOrder,
    SentenceRelation,
)
from bertwright.objectives.span_boundary import SpanBoundary
from bertwright.objectives.token_document import TokenDocument
from bertwright.objectives.word_order import WordOrder

__all__ = [
    "ActivationChange",
    "ActivationSize",
    "AdaptiveSoftmax",
    "Autoencoding",
    "Capitalised",
    "Causal",
    "Denoising",
    "Dialogue",
    "DiscourseRelation",
    "Generated",
    "Masked",
    "NextSentence",
    "Objective",
    "PairQuestion",
    "Permutation",
    "Ponder",
    "Reordering",
    "ReplacedToken",
    "SentenceDistance",
    "SentenceOrder",
    "SentenceRelation",
    "SpanBoundary",
    "TokenDocument",
    "WordOrder",
]
