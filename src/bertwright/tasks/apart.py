"""Two texts of a row that do not see each other: what an encoder says of each is what it would say
of that text alone."""

from bertwright.encoder.visibility import SameDocument
from bertwright.errors import UserError
from bertwright.recipes import Recipe
from bertwright.tasks.answers.answer import Answer
from bertwright.tasks.answers.texts import TextAnswer


def keeping_apart(recipe: Recipe) -> Recipe:
    """The recipe, of which every place sees its own text only.

    Errors: UserError for an encoder that cannot keep texts apart.
    """
    encoder = recipe.encoder
    try:
        apart = encoder.changed("encoder", visibility=encoder.visibility & SameDocument())
    except ValueError as error:
        raise UserError(f"head.read: apart is not for this encoder: {error}") from error
    return recipe.model_copy(update={"encoder": apart})


def can_keep_apart(recipe: Recipe) -> bool:
    """Return whether an encoder can keep texts apart."""
    try:
        keeping_apart(recipe)
    except UserError:
        return False
    return True


def check_apart(mix: str, answer: Answer) -> str | None:
    """What speaks against reading texts apart for this answer, in words."""
    if not isinstance(answer, TextAnswer):
        return f"head.read: an answer of {answer.name} is not read from texts apart"
    if mix != "concat":
        return "head.mix: what is read apart is multiplied, and not mixed: choose concat"
    if answer.stride is not None:
        return "answer.stride: texts that are read apart have no windows: leave it out"
    return None
