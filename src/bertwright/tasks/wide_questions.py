"""Questions that see everything and are seen by everything, in encoders that have such places."""

from collections.abc import Sequence

from bertwright.encoder.visibility import of_segment
from bertwright.recipes import Recipe
from bertwright.tasks.answers.answer import Answer


def with_wide_questions(recipe: Recipe, answers: Sequence[Answer]) -> Recipe:
    """The recipe, whose places that see everything are those of the question as well, where all of
    these answers are to one (Beltagy et al. 2020, section 3.1); of no question of a task before."""
    asking = {answer.question_segment for answer in answers}
    encoder = recipe.encoder
    rule = of_segment(encoder.visibility, asking.pop() if len(asking) == 1 else None)
    return recipe.model_copy(update={"encoder": encoder.model_copy(update={"visibility": rule})})
