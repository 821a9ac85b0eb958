"""Checks whether a teacher can be distilled into a student in pre-training."""

from collections.abc import Sequence

from torch import nn

from bertwright.compression.distillation.losses import DistillationTerms, VectorLossConfig
from bertwright.compression.distillation.losses.layers import LayerLoss
from bertwright.compression.distillation.stages import DistillationStage
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.training.distillation_loss import DISTILLATION_PREFIX


def masked_objective_name(student: Model, teacher: Model) -> str:
    """Return the name of the student's masked-token objective.

    Raises UserError unless there is exactly one and the teacher predicts tokens too.
    """
    recipe = student.recipe
    objectives = recipe.objectives
    masked = [n for n, o in objectives.items() if o.capabilities.prediction == "masked"]
    has_generator = any(objective.capabilities.is_generator for objective in objectives.values())
    if len(masked) != 1 or has_generator or teacher.output is None:
        raise UserError(
            "distillation in pre-training compares predictions of masked tokens: teacher and "
            "student need the objective masked, and no generator; to learn the teacher's vectors "
            "instead, use --distillation leaf"
        )
    phases = range(len(recipe.phases))
    turns = [turn for phase in phases for turn in recipe.objective_schedule(phase)]
    if any(masked[0] not in turn.objectives for turn in turns):
        raise UserError(
            f"distillation needs the objective {masked[0]} in every step: leave out objectives of "
            f"phases, and other objectives with a fraction"
        )
    return masked[0]


def require_same_sequences(student: Model, teacher: Model) -> None:
    """Raise UserError unless the teacher can read the student's sequences in every phase."""
    recipe = student.recipe
    if recipe.phases[0].depth < 1.0:
        raise UserError(
            "distillation does not support progressive stacking: set the depth of all phases to 1"
        )
    phases = range(len(recipe.phases))
    student_length = max(recipe.input_format_of(phase).length for phase in phases)
    max_length = teacher.encoder.max_length
    if max_length is not None and max_length < student_length:
        raise UserError(
            f"the teacher reads sequences of at most {max_length} positions, and its student reads "
            f"{student_length}: set a smaller assembly.length"
        )


def learns_vectors(stages: Sequence[DistillationStage]) -> bool:
    """Return whether a loss compares the vectors of texts."""
    return any(isinstance(loss, VectorLossConfig) for stage in stages for loss in stage.losses)


def require_same_vector_width(
    stages: Sequence[DistillationStage], student_width: int, teacher_width: int
) -> None:
    """Raise UserError if a loss compares vectors of different widths."""
    if learns_vectors(stages) and student_width != teacher_width:
        raise UserError(
            f"the student's vectors have {student_width} dimensions and the teacher's "
            f"{teacher_width}: pre-train the student with vectors.projection.width={teacher_width}"
        )


def require_start_token_first(stages: Sequence[DistillationStage], *recipes: Recipe) -> None:
    """Raise UserError if a loss compares vectors of start tokens that are not the first tokens."""
    losses = [loss for stage in stages for loss in stage.losses]
    pools_first = any(isinstance(o, VectorLossConfig) and o.pooling == "cls" for o in losses)
    for recipe in recipes:
        if pools_first and recipe.assembly.ends_with_start_token:
            raise UserError(
                f"the vectors of the first tokens are compared, and the start token of "
                f"{recipe.name} is the last: set the pooling of the loss to mean"
            )


def require_only_vectors(
    student: Model, stages: Sequence[DistillationStage], teacher: TextModel, data: Dataset
) -> None:
    """Raise UserError unless a teacher with another tokenizer can be learned from.

    Its text vectors can, by a student that reads whole texts forward, without masks.
    """
    losses = [loss for stage in stages for loss in stage.losses]
    if not all(isinstance(loss, VectorLossConfig) for loss in losses):
        raise UserError(
            f"{data.path} was prepared with another tokenizer than the teacher's: prepare the text "
            f"with the teacher's tokenizer, or learn its text vectors alone (--distillation leaf)"
        )
    reason = None
    if student.recipe.objectives:
        name = next(iter(student.recipe.objectives))
        reason = f"no objective may change its texts: leave it out with objectives={{{name}: null}}"
    elif student.recipe.assembly.num_directions > 1:
        reason = "texts must be read forward only: choose another assembly"
    elif "items" in (data.tokenizer.kind, teacher.tokenizer.kind):
        reason = "items are not text: name a teacher with the student's tokenizer"
    if reason is not None:
        raise UserError(f"{data.path} has another tokenizer than the teacher, so {reason}")


def require_block_schedule(student: Model, distillation_terms: DistillationTerms) -> None:
    depth = student.recipe.encoder.depth
    if depth.sharing != "none" or student.decoder is not None:
        raise UserError(
            "a block schedule needs encoder blocks with parameters of their own: set "
            "encoder.depth.sharing to none, and leave out block_schedule for a decoder"
        )
    if next(distillation_terms.parameters(), None) is not None:
        raise UserError(
            "a block schedule trains no projections: the student needs the teacher's hidden size "
            "between its blocks, as mobilebert and ib-bert have"
        )
    layers = list(range(1, len(depth.sublayer_orders()) + 1))
    for term in distillation_terms.modules_list:
        if isinstance(term, LayerLoss) and [layer for layer, _ in term.pairs] != layers:
            raise UserError(
                "a block schedule needs one teacher layer for every block: leave out layers.pairs, "
                "layers.subset and layers.embeddings"
            )


def require_same_shapes(student: Model, teacher: Model) -> None:
    teacher_parameters = dict(teacher.named_parameters())
    for name, parameter in non_block_parameters(student).items():
        other = teacher_parameters.get(name)
        shape = None if other is None else tuple(other.shape)
        is_required = name.startswith(("encoder.", "output."))
        if shape != tuple(parameter.shape) and (is_required or other is not None):
            raise UserError(
                f"copy_non_block_weights needs the same shapes outside the blocks, and {name} is "
                f"{tuple(parameter.shape)} in the student and {shape or 'missing'} in the teacher: "
                f"choose the same embeddings and the same output"
            )


def non_block_parameters(model: Model) -> dict[str, nn.Parameter]:
    """Return the parameters outside of the blocks, by name."""
    excluded = ("encoder.blocks.", DISTILLATION_PREFIX)
    return {n: p for n, p in model.named_parameters() if not n.startswith(excluded)}
