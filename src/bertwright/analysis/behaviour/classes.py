"""Which class a fine-tuned model names, of texts as they are or of what was made of them."""

from collections.abc import Mapping, Sequence

from bertwright.analysis.analysis import Case
from bertwright.analysis.classifying import names_classes
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Example

Words = list[str]


def lacks_classes(case: Case) -> str | None:
    """Why there is no class to be named, in words."""
    if names_classes(case.subject):
        return None
    return "it needs a model that was fine-tuned to name a class of texts"


def classified(subject: Subject, texts: Sequence[Sequence[Words]]) -> list[Mapping[str, float]]:
    """How likely each class is, of texts of one part or two."""
    model = subject.text_model
    assert isinstance(model, FineTuned)
    joined = [[" ".join(part) for part in parts] for parts in texts]
    examples = [Example(parts[0], parts[1] if len(parts) > 1 else None) for parts in joined]
    said = [prediction.probabilities for prediction in model.predict(examples)]
    return [own for own in said if isinstance(own, dict)]


def likeliest(chances: Sequence[Mapping[str, float]]) -> list[str]:
    """The class of each; a tie goes to the first."""
    return [max(own, key=own.__getitem__) for own in chances]


def parts_of(text: ReadText) -> list[Words]:
    """The words of each part of a text, as spaces set them apart: joined by these they are what is
    written, whatever pieces a tokenizer makes of it."""
    return [part.split(" ") for part in text.written]
