"""Training objectives, one file each."""

from bertwright.objectives.activation_penalty import ActivationChange, ActivationSize
from bertwright.objectives.autoencoding import Autoencoding
from bertwright.objectives.capitalisation import Capitalisation
from bertwright.objectives.causal import CausalLM
from bertwright.objectives.denoising import Denoising
from bertwright.objectives.discourse_relation import DiscourseRelation
from bertwright.objectives.generator import GeneratorLM
from bertwright.objectives.heads.adaptive_lm_head import AdaptiveSoftmaxConfig
from bertwright.objectives.masked import MaskedLM
from bertwright.objectives.objective import Objective
from bertwright.objectives.permutation import PermutationLM
from bertwright.objectives.ponder import PonderCost
from bertwright.objectives.reordering import SentenceReordering
from bertwright.objectives.replaced_token import ReplacedTokenDetection
from bertwright.objectives.sentence_relation import (
    DialogueRelation,
    NextSentence,
    SentenceDistance,
    SentenceOrder,
    SentenceRelation,
    TextRelation,
)
from bertwright.objectives.span_boundary import SpanBoundary
from bertwright.objectives.token_document import TokenDocumentRelation
from bertwright.objectives.word_order import WordOrder

__all__ = [
    "ActivationChange",
    "ActivationSize",
    "AdaptiveSoftmaxConfig",
    "Autoencoding",
    "Capitalisation",
    "CausalLM",
    "Denoising",
    "DialogueRelation",
    "DiscourseRelation",
    "GeneratorLM",
    "MaskedLM",
    "NextSentence",
    "Objective",
    "PermutationLM",
    "PonderCost",
    "ReplacedTokenDetection",
    "SentenceDistance",
    "SentenceOrder",
    "SentenceRelation",
    "SentenceReordering",
    "SpanBoundary",
    "TextRelation",
    "TokenDocumentRelation",
    "WordOrder",
]
