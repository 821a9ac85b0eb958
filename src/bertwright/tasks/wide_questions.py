"""Questions that see everything and are seen by everything, in encoders that have such places."""

from collections.abc import Sequence

from bertwright.encoder.visibility import of_segment, with_first
from bertwright.recipes import Recipe
from bertwright.tasks.answers.answer import Answer


def with_wide_questions(recipe: Recipe, answers: Sequence[Answer]) -> Recipe:
    """Return the recipe with the global places of a task (Beltagy et al. 2020, section 3.1).

    Beside those that it has they are those of the question, where all of these answers are to one;
    and where all are read from a whole text, the first place, if it has no others.
    """
    asking = {answer.question_segment for answer in answers}
    encoder = recipe.encoder
    rule = of_segment(encoder.visibility, asking.pop() if len(asking) == 1 else None)
    if all(answer.reads == "text" and answer.question_segment is None for answer in answers):
        rule = with_first(rule)
    return recipe.model_copy(update={"encoder": encoder.model_copy(update={"visibility": rule})})
