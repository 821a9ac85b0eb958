"""What a model is asked to see whether something matters to it: to name the classes of texts if it
was fine-tuned to, else pieces."""

from dataclasses import replace

from bertwright.analysis.analysis import Case
from bertwright.analysis.asking import Asking, Questions
from bertwright.analysis.classifying import Classifying, names_classes, right_classes
from bertwright.analysis.subject import Subject
from bertwright.model.hidden import last_asked
from bertwright.objectives.masked import Masked
from bertwright.objectives.permutation import Permutation
from bertwright.significance import halves
from bertwright.tasks.fine_tuned import FineTuned

HIDDEN = "hidden pieces in their own places"


def questions(case: Case) -> Questions:
    """Texts of a case and what is asked of them. The class of a text that has no label is that
    which the model names now."""
    if names_classes(case.subject):
        right = right_classes(case.subject, case.texts)
        return Classifying(case.subject, case.texts, case.seed, right)
    return Asking(case.subject, case.texts, case.seed)


def in_halves(case: Case) -> tuple[Questions, Questions]:
    """The same of half of the texts, to choose by, and of the other half, to judge."""
    choosing, judging = (
        questions(replace(case, texts=[case.texts[number] for number in half]))
        for half in halves(len(case.texts), case.seed)
    )
    return choosing, judging


def lacks_questions(subject: Subject) -> str | None:
    """Why nothing can be asked, in words."""
    model = subject.text_model
    if names_classes(subject):
        assert isinstance(model, FineTuned)
        if model.task.answer.reads != "text":
            return "its classes are words in a template, which stands around every text"
    elif not model.names_pieces:
        return "its encoder names neither pieces nor classes"
    return None


def lacks_rows_of_text(subject: Subject) -> str | None:
    """Why the rows of attention are not those of a text alone, in words."""
    if any(isinstance(own, Permutation) for own in last_asked(subject.text_model.model)):
        return "it names pieces in rows behind the text, which this does not look at"
    return None


def lacks_hidden_places(subject: Subject) -> str | None:
    """Why no hidden piece is named where it stands, in words."""
    model = subject.text_model
    elsewhere = lacks_rows_of_text(subject) is not None or any(
        isinstance(own, Masked) and own.shift for own in last_asked(model.model)
    )
    if not model.names_pieces or model.continues or elsewhere:
        return f"it needs a model that names {HIDDEN}"
    return None
