"""The student at the start of a method: checks, and building it from layers, model or recipe."""

from collections.abc import Callable, Iterable

import torch

from bertwright.compression.distillation.losses import DistillationTerms
from bertwright.compression.distillation.transfer import TransferSets
from bertwright.compression.method import CompressionMethod, EmbeddingInit
from bertwright.compression.module_replacement import require_divisible_layers
from bertwright.compression.pruning import WeightPruning
from bertwright.compression.pruning.layers import (
    default_num_layers,
    important_layers,
    prune_config_layers,
    prune_layers,
    require_layers,
    select_layers,
)
from bertwright.compression.vocabulary.narrower_embeddings import (
    has_embedding_table,
    project_embeddings,
)
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer, WordLevelConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.encoder import Encoder
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.fake_quantizer_removal import remove_fake_quantizers
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.outputs.cloze import ClozeOutput
from bertwright.tasks.outputs.text.generated import GeneratedOutput

DUMMY_VOCAB_SIZE = 1 << 20
"""An arbitrary vocabulary size: the matrices of blocks do not depend on it."""

StudentSource = TextModel | str | None
"""The student as named by a user: a model, a recipe, or None."""


def require_compatible(
    method: CompressionMethod, teacher: EncoderConfig, student: StudentSource, layers: int | None
) -> None:
    """Check that a method fits a teacher and a student.

    Raises UserError for impossible layer counts; for losses, pruning or replacement of parts that
    the student does not have; and if pruning would leave nothing of a matrix.
    """
    encoder, first = student_config(method, teacher, student, layers), method.stages[0]
    is_teacher = (student or method.student) is None and layers is None and method.keep_all_layers
    if (first.structured_pruning or first.mixed_precision) and not (
        is_teacher and method.sharing is None
    ):
        key = "structured_pruning" if first.structured_pruning else "mixed_precision"
        raise UserError(
            f"{key} needs a model that has learned the task: leave --student and --layers out, so "
            f"that the fine-tuned model itself is compressed"
        )
    if not num_layers(encoder) and any(
        stage.structured_pruning or stage.mixed_precision for stage in method.stages
    ):
        raise UserError("the model has no blocks to compress: choose another method")
    require_supported(method, teacher, encoder)


def require_supported(
    method: CompressionMethod, teacher: EncoderConfig, student: EncoderConfig
) -> None:
    """Raise UserError if the student cannot be distilled, replaced, pruned or quantized."""
    for stage in method.stages:
        if stage.replacement_probability is not None:
            require_divisible_layers(num_layers(teacher), num_layers(student))
        adaptation = FineTuningConfig.from_settings(stage.settings).adaptation
        if problem := adaptation.check(student):
            raise UserError(problem)
        with torch.device("meta"):
            DistillationTerms(stage.losses, student, teacher)
            if isinstance(adaptation, WeightPruning):
                adaptation.build_parametrisation(Encoder(student, DUMMY_VOCAB_SIZE))


def require_unlabelled_used(method: CompressionMethod, student: StudentSource) -> None:
    """Raise UserError for a method that only uses the texts of the task."""
    source = student or method.student
    trains_vocabulary = isinstance(source, str) and isinstance(
        Recipe.load(source).text.tokenizer, WordLevelConfig
    )
    if not trains_vocabulary and not method.uses_unlabelled:
        raise UserError(
            "the method does not use the texts of --unlabelled: leave it out, or choose a method "
            "with a stage that sets examples: unlabelled"
        )


def student_config(
    method: CompressionMethod, teacher: EncoderConfig, student: StudentSource, layers: int | None
) -> EncoderConfig:
    """Return the encoder config that a student starts with, before parameters are shared."""
    source = student or method.student
    if isinstance(source, str):
        if layers is not None:
            raise UserError(
                "a student that starts from a recipe has the layers of its recipe: leave --layers "
                "out, or give --student a recipe of another depth"
            )
        if method.sharing is not None:
            raise UserError(
                f"sharing needs the layers of a trained model: leave the recipe {source} out, or "
                f"give --student the folder of a model"
            )
        return Recipe.load(source).encoder
    config = teacher if source is None else source.model.recipe.encoder
    if layers is None and (source is not None or method.keep_all_layers):
        return config
    depth = default_num_layers(num_layers(config)) if layers is None else layers
    require_layers(depth, num_layers(config))
    return prune_config_layers(config, range(depth))


def num_layers(config: EncoderConfig) -> int:
    """Return the number of blocks that run."""
    return len(config.depth.sublayer_orders())


def student_factory(
    teacher: FineTunedModel,
    student: TextModel | str | None,
    layers: int | None,
    method: CompressionMethod,
    transfer_sets: TransferSets,
) -> Callable[[int], TextModel]:
    """Return a function that builds the student of a run, given the seed.

    ``student`` and ``layers`` are as in ``compress`` and have been checked for compatibility.
    Raises UserError if tokens or embeddings do not match.
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
    takes_layers = layers is not None or (is_teacher and not method.keep_all_layers)
    if takes_layers or method.sharing is not None:
        _require_no_lm_head(source)
    if takes_layers:
        source = prune_layers(
            source, _choose_layers(source, layers, method, teacher, transfer_sets)
        )
    if any(stage.replacement_probability is not None for stage in method.stages):
        _require_same_embeddings(source, teacher)
    if method.sharing is not None:
        source = method.sharing.apply(source)
    return lambda seed: source


def _require_no_lm_head(source: TextModel) -> None:
    """Raise UserError for a fine-tuned model whose outputs come from a head that would be lost."""
    if isinstance(source, FineTunedModel) and isinstance(
        source.task.output_type, ClozeOutput | GeneratedOutput
    ):
        raise UserError(
            f"task {source.task.name} needs a language-model head, which is not kept with layers "
            f"of a fine-tuned model: give --student a smaller pre-trained model"
        )


def _require_same_embeddings(student: TextModel, teacher: FineTunedModel) -> None:
    """Raise UserError if anything outside of the blocks differs from the teacher."""
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
    """Return the indices of the layers to keep; the default is half of them."""
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


class StudentFromRecipe:
    """A student built from a recipe, given by name or file.

    A recipe with a word-level tokenizer gets a vocabulary trained on ``texts``; other recipes use
    the teacher's tokenizer. With ``embeddings`` "teacher", the embedding table starts as the
    teacher's table, projected to the student's width and scaled to the usual size of initial
    values; with "random", or without a table, it is initialised like all other weights.
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
        """Return the student with weights initialised from a seed."""
        recipe = self._recipe.model_copy(update={"seed": seed})
        model = Model.build(recipe, self.tokenizer.vocab_size, self.tokenizer)
        student = TextModel(model, self.tokenizer, self._teacher.precision)
        if self._copies_embeddings and has_embedding_table(student):
            table = model.embedding_table
            projected = project_embeddings(self._teacher, self.tokenizer, table.shape[1]).to(table)
            scale = (table.square().mean() / projected.square().mean()).sqrt()
            table.copy_(projected * scale)
        return student
