"""Output types: classes, labels, numbers, tags, heads, spans, options, matches, texts..."""

from bertwright.tasks.outputs.classification import (
    ClassificationOutput,
    MultiLabelOutput,
    RegressionOutput,
)
from bertwright.tasks.outputs.cloze import ClozeOutput
from bertwright.tasks.outputs.dependency_heads import DependencyHeadOutput
from bertwright.tasks.outputs.multiple_choice import MultipleChoiceOutput
from bertwright.tasks.outputs.output_decoder import OutputDecoder
from bertwright.tasks.outputs.output_type import OutputType
from bertwright.tasks.outputs.prediction import Prediction
from bertwright.tasks.outputs.probabilities import FloatArray
from bertwright.tasks.outputs.relevance import RelevanceOutput
from bertwright.tasks.outputs.span import SpanOutput
from bertwright.tasks.outputs.text.generated import GeneratedOutput, TextOutput
from bertwright.tasks.outputs.text.verbalised import ClassInWordsOutput, NumberInWordsOutput
from bertwright.tasks.outputs.token_classification import TokenClassificationOutput
from bertwright.tasks.outputs.vectors.late_interaction import LateInteractionOutput
from bertwright.tasks.outputs.vectors.matching import MatchingOutput
from bertwright.tasks.outputs.vectors.similarity import SimilarityOutput
from bertwright.tasks.outputs.vectors.sparse import SparseOutput

__all__ = [
    "ClassInWordsOutput",
    "ClassificationOutput",
    "ClozeOutput",
    "DependencyHeadOutput",
    "FloatArray",
    "GeneratedOutput",
    "LateInteractionOutput",
    "MatchingOutput",
    "MultiLabelOutput",
    "MultipleChoiceOutput",
    "NumberInWordsOutput",
    "OutputDecoder",
    "OutputType",
    "Prediction",
    "RegressionOutput",
    "RelevanceOutput",
    "SimilarityOutput",
    "SpanOutput",
    "SparseOutput",
    "TextOutput",
    "TokenClassificationOutput",
]
