"""What tasks ask: a class, labels, a number, tags, a span, an option, vectors that are near."""

from bertwright.tasks.answers.answer import Answer, Answering, Floats, Prediction
from bertwright.tasks.answers.closeness import ClosenessAnswer
from bertwright.tasks.answers.cloze import ClozeAnswer
from bertwright.tasks.answers.options import OptionAnswer
from bertwright.tasks.answers.relevance import RelevanceAnswer
from bertwright.tasks.answers.span import SpanAnswer
from bertwright.tasks.answers.tags import TagAnswer
from bertwright.tasks.answers.texts import ClassAnswer, LabelsAnswer, NumberAnswer

__all__ = [
    "Answer",
    "Answering",
    "ClassAnswer",
    "ClosenessAnswer",
    "ClozeAnswer",
    "Floats",
    "LabelsAnswer",
    "NumberAnswer",
    "OptionAnswer",
    "Prediction",
    "RelevanceAnswer",
    "SpanAnswer",
    "TagAnswer",
]
