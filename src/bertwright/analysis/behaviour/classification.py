"""Predicted classes of original and constructed texts."""

from collections.abc import Mapping, Sequence

from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import AnalysedText
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Example

PartWords = list[str]


def class_probabilities(
    model: AnalysedModel, texts: Sequence[Sequence[PartWords]]
) -> list[Mapping[str, float]]:
    """Return the class probabilities of texts with one or two parts."""
    text_model = model.text_model
    assert isinstance(text_model, FineTunedModel)
    joined = [[" ".join(part) for part in parts] for parts in texts]
    examples = [Example(parts[0], parts[1] if len(parts) > 1 else None) for parts in joined]
    predictions = [prediction.probabilities for prediction in text_model.predict(examples)]
    return [by_class for by_class in predictions if isinstance(by_class, dict)]


def most_likely_classes(probabilities: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the most likely class of each text; a tie goes to the first."""
    return [max(by_class, key=by_class.__getitem__) for by_class in probabilities]


def split_parts(text: AnalysedText) -> list[PartWords]:
    """Split the parts of a text at spaces, regardless of tokens; joined, they are the raw text."""
    return [part.split(" ") for part in text.raw_texts]
