"""Build a student: from layers of its teacher, from another model, or from a recipe."""

from collections.abc import Callable, Iterable

import torch

from bertwright.compression.distillation.transfer import TransferSets
from bertwright.compression.method import CompressionMethod, EmbeddingInit
from bertwright.compression.pruning.layers import (
    default_num_layers,
    important_layers,
    prune_layers,
    select_layers,
)
from bertwright.compression.vocabulary.projected_embeddings import (
    has_embedding_table,
    project_embeddings,
)
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer, WordLevelConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.fake_quantizer_removal import remove_fake_quantizers
from bertwright.tasks.fine_tuned_model import FineTunedModel


def student_factory(
    teacher: FineTunedModel,
    student: TextModel | str | None,
    layers: int | None,
    method: CompressionMethod,
    transfer_sets: TransferSets,
) -> Callable[[int], TextModel]:
    """Return a function from the seed of a run to its student.

    ``student`` and ``layers`` are as in ``compress`` and have been checked for compatibility.
    Raises UserError for mismatched tokens or embeddings.
    """
    source = student or method.student or teacher
    if isinstance(source, str):
        recipe = StudentFromRecipe(
            source, teacher, transfer_sets.texts(), method.student_embeddings
        )
        method.require_mask_token(recipe.tokenizer, teacher.tokenizer)
        return recipe.build
    method.require_mask_token(source.tokenizer, teacher.tokenizer)
    is_teacher, source = source is teacher, remove_fake_quantizers(source)
    if layers is not None or (is_teacher and not method.keep_all_layers):
        source = prune_layers(
            source, _choose_layers(source, layers, method, teacher, transfer_sets)
        )
    if any(stage.replacement_probability is not None for stage in method.stages):
        _require_same_embeddings(source, teacher)
    if method.sharing is not None:
        source = method.sharing.apply(source)
    return lambda seed: source


def _require_same_embeddings(student: TextModel, teacher: FineTunedModel) -> None:
    """Raise UserError if anything outside the blocks differs from the teacher's."""
    student_weights, teacher_weights = (
        model.model.encoder.state_dict() for model in (student, remove_fake_quantizers(teacher))
    )
    names = {
        n for n in student_weights.keys() | teacher_weights.keys() if not n.startswith("blocks.")
    }
    if not all(
        name in student_weights
        and name in teacher_weights
        and torch.equal(student_weights[name], teacher_weights[name])
        for name in names
    ):
        raise UserError(
            "module replacement needs a student with the teacher's embeddings, and those of "
            "--student differ: leave --student out"
        )


def _choose_layers(
    student: TextModel,
    layers: int | None,
    method: CompressionMethod,
    teacher: FineTunedModel,
    transfer_sets: TransferSets,
) -> list[int]:
    """Return the indices of the layers to keep, by default half of them."""
    depth = len(student.model.encoder.blocks)
    number = layers or default_num_layers(depth)
    if method.layer_selection != "important":
        return select_layers(number, depth, method.layer_selection)
    teacher_depth = len(teacher.task_model.encoder.blocks)
    if depth != teacher_depth:
        raise UserError(
            f"layer_selection: important measures the {teacher_depth} layers of the fine-tuned "
            f"model, and the student has {depth}: choose a method that takes the first, the last "
            f"or evenly spaced layers"
        )
    return important_layers(teacher, transfer_sets.train, number)


def trains_word_vocabulary(recipe: str) -> bool:
    """Return True if a student of a recipe gets a vocabulary of the words of its texts."""
    return isinstance(Recipe.load(recipe).text.tokenizer, WordLevelConfig)


class StudentFromRecipe:
    """A student of a recipe, by its name or its file.

    A recipe with a word-level tokenizer trains its vocabulary on ``texts``; any other uses the
    teacher's tokenizer. With ``embeddings`` "teacher", the embedding table starts as the teacher's,
    projected to the student's width and scaled to the size at which it would be drawn; with
    "random", or without a table, it is drawn like all other weights.
    """

    def __init__(
        self, recipe: str, teacher: TextModel, texts: Iterable[str], embeddings: EmbeddingInit
    ) -> None:
        self._recipe = Recipe.load(recipe)
        self._teacher = teacher
        config = self._recipe.text.tokenizer
        self.tokenizer: Tokenizer = (
            train_tokenizer(texts, config)
            if isinstance(config, WordLevelConfig)
            else teacher.tokenizer
        )
        self._copies_embeddings = embeddings == "teacher" and has_embedding_table(teacher)

    @torch.no_grad()
    def build(self, seed: int) -> TextModel:
        """Return the student with weights drawn by a seed."""
        recipe = self._recipe.model_copy(update={"seed": seed})
        model = Model.build(recipe, self.tokenizer.vocab_size, self.tokenizer)
        student = TextModel(model, self.tokenizer, self._teacher.precision)
        if self._copies_embeddings and has_embedding_table(student):
            table = model.embedding_table
            projected = project_embeddings(self._teacher, self.tokenizer, table.shape[1]).to(table)
            scale = (table.square().mean() / projected.square().mean()).sqrt()
            table.copy_(projected * scale)
        return student
