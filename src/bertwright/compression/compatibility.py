"""Check a method, a teacher and a student for compatibility, before anything is trained."""

import torch

from bertwright.compression.distillation.losses import DistillationTerms
from bertwright.compression.initial_student import trains_word_vocabulary
from bertwright.compression.method import CompressionMethod
from bertwright.compression.module_replacement import require_divisible_layers
from bertwright.compression.pruning import WeightPruning
from bertwright.compression.pruning.layers import (
    default_num_layers,
    prune_config_layers,
    require_layers,
)
from bertwright.core.errors import UserError
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.encoder import Encoder
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.finetuning.config import FineTuningConfig

DUMMY_VOCAB_SIZE = 1 << 20
"""Any vocabulary size: the matrices of blocks do not depend on it."""

StudentSource = TextModel | str | None
"""The student that a user names: a model, a recipe, or nothing."""


def require_compatible(
    method: CompressionMethod, teacher: EncoderConfig, student: StudentSource, layers: int | None
) -> None:
    """Check that a method fits a teacher and a student.

    Raises UserError for impossible layer counts, for losses, pruning or replacement that the
    student has no counterpart of, and if nothing would be left.
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
    """Raise UserError if the student cannot be distilled, replaced, pruned or quantized so."""
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
    """Raise UserError for a method that reads the texts of the task only."""
    source = student or method.student
    trains_vocabulary = isinstance(source, str) and trains_word_vocabulary(source)
    if not trains_vocabulary and not method.uses_unlabelled:
        raise UserError(
            "the method does not use the texts of --unlabelled: leave it out, or choose a method "
            "with a stage that sets examples: unlabelled"
        )


def student_config(
    method: CompressionMethod, teacher: EncoderConfig, student: StudentSource, layers: int | None
) -> EncoderConfig:
    """Return the encoder config that a student starts with, before its blocks are shared."""
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
