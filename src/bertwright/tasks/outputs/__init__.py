"""Output types: classes, labels, numbers, tags, spans, options, similarity, relevance, cloze."""

from bertwright.tasks.outputs.classification import (
    ClassificationOutput,
    MultiLabelOutput,
    RegressionOutput,
)
from bertwright.tasks.outputs.cloze import ClozeOutput
from bertwright.tasks.outputs.multiple_choice import MultipleChoiceOutput
from bertwright.tasks.outputs.output_type import FloatArray, OutputDecoder, OutputType, Prediction
from bertwright.tasks.outputs.relevance import RelevanceOutput
from bertwright.tasks.outputs.similarity import SimilarityOutput
from bertwright.tasks.outputs.span import SpanOutput
from bertwright.tasks.outputs.token_classification import TokenClassificationOutput

__all__ = [
    "ClassificationOutput",
    "ClozeOutput",
    "FloatArray",
    "MultiLabelOutput",
    "MultipleChoiceOutput",
    "OutputDecoder",
    "OutputType",
    "Prediction",
    "RegressionOutput",
    "RelevanceOutput",
    "SimilarityOutput",
    "SpanOutput",
    "TokenClassificationOutput",
]
