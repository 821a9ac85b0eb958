"""Students that begin from nothing: what a recipe says, for the pieces of the teacher or for words
of the texts."""

from collections.abc import Iterable
from typing import Literal

import torch

from bertwright.compression.projected_table import has_table, projected_table
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Tokenizer, WordsChoice
from bertwright.text.vocabularies import train_tokenizer

Table = Literal["teacher", "drawn"]


def learns_words(recipe: str) -> bool:
    """Whether a student of a recipe has a vocabulary of its own, of the words of texts."""
    return isinstance(Recipe.load(recipe).text.tokenizer, WordsChoice)


class FromNothing:
    """A student of a recipe, by its name or its file.

    Where the recipe asks for words its vocabulary is learned from the ``texts``, else its pieces
    are the teacher's. Its table begins as the teacher's, brought to its width and to the size at
    which it would be drawn, or is ``drawn``, as everything else. An encoder without a table is
    drawn whole.
    """

    def __init__(self, recipe: str, teacher: TextModel, texts: Iterable[str], table: Table) -> None:
        self._recipe = Recipe.load(recipe)
        self._teacher = teacher
        words = self._recipe.text.tokenizer
        self.tokenizer: Tokenizer = (
            train_tokenizer(texts, words) if isinstance(words, WordsChoice) else teacher.tokenizer
        )
        self._from_teacher = table == "teacher" and has_table(teacher)

    @torch.no_grad()
    def at(self, seed: int) -> TextModel:
        """As it is drawn by a seed."""
        recipe = self._recipe.model_copy(update={"seed": seed})
        model = Model.build(recipe, self.tokenizer.size, self.tokenizer)
        student = TextModel(model, self.tokenizer, self._teacher.precision)
        if self._from_teacher and has_table(student):
            table = model.embedding
            found = projected_table(self._teacher, self.tokenizer, table.shape[1]).to(table)
            table.copy_(found * (table.square().mean() / found.square().mean()).sqrt())
        return student
