"""Attention masks of tasks: siamese encoding of pairs, and global attention of questions."""

from collections.abc import Sequence

from bertwright.core.errors import UserError
from bertwright.encoder.config import EncoderConfig
from bertwright.modules.attention.mask import (
    SameDocumentVisibility,
    with_global_first_token,
    with_global_segment,
)
from bertwright.recipes import Recipe
from bertwright.tasks.outputs.classification import SequenceOutput
from bertwright.tasks.outputs.output_type import OutputType


def isolate_texts(encoder: EncoderConfig) -> EncoderConfig:
    """Return the encoder with attention restricted to the position's own text.

    Errors: ValueError for an encoder that does not support it.
    """
    return encoder.copy_with("encoder", visibility=encoder.visibility & SameDocumentVisibility())


def with_siamese_visibility(recipe: Recipe) -> Recipe:
    """Return the recipe with attention restricted to the position's own text.

    Errors: UserError for an encoder that does not support it.
    """
    try:
        siamese = isolate_texts(recipe.encoder)
    except ValueError as error:
        raise UserError(
            f"head.pooling: siamese does not work with this encoder: {error}"
        ) from error
    return recipe.model_copy(update={"encoder": siamese})


def can_be_siamese(recipe: Recipe) -> bool:
    """Return whether an encoder can encode the texts of a pair independently."""
    try:
        with_siamese_visibility(recipe)
    except UserError:
        return False
    return True


def check_siamese(mix: str, output_type: OutputType) -> str | None:
    """Return why an output type does not fit a siamese head; None if it does."""
    if not isinstance(output_type, SequenceOutput):
        return f"head.pooling: output type {output_type.kind_name()} does not work with siamese"
    if mix != "concat":
        return "head.mix: head.pooling siamese does not mix layers: choose concat"
    if output_type.stride is not None:
        return "output_type.stride: head.pooling siamese has no windows: leave it out"
    return None


def with_global_question_attention(recipe: Recipe, output_types: Sequence[OutputType]) -> Recipe:
    """Return the recipe with the global attention of a task (Beltagy et al. 2020, section 3.1).

    The positions of the question get global attention if all output types have the question in the
    same segment. If all output types classify whole texts, the first position gets it, unless other
    positions already have it.
    """
    segments = {output_type.question_segment for output_type in output_types}
    encoder = recipe.encoder
    visibility = with_global_segment(
        encoder.visibility, next(iter(segments)) if len(segments) == 1 else None
    )
    if all(o.level == "sequence" and o.question_segment is None for o in output_types):
        visibility = with_global_first_token(visibility)
    encoder = encoder.model_copy(update={"visibility": visibility})
    return recipe.model_copy(update={"encoder": encoder})
