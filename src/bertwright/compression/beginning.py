"""A student before its first stage: layers of its teacher, another model, or one from nothing."""

from collections.abc import Callable

import torch

from bertwright.compression.from_nothing import FromNothing
from bertwright.compression.method import Method
from bertwright.compression.needed_layers import needed_layers
from bertwright.compression.quantisation import unrounded
from bertwright.compression.students import layers_taken, shortened, usual_layers
from bertwright.compression.transfer import TransferSets
from bertwright.errors import UserError
from bertwright.model.text_model import TextModel
from bertwright.tasks.fine_tuned import FineTuned


def beginning(
    teacher: FineTuned,
    student: TextModel | str | None,
    layers: int | None,
    method: Method,
    sets: TransferSets,
) -> Callable[[int], TextModel]:
    """By the seed of a run; the student and its layers where a user has named them, who were found
    to suit the method.

    Errors: UserError for pieces that do not go together, and for layers of others.
    """
    source = student or method.student or teacher
    if isinstance(source, str):
        drawn = FromNothing(source, teacher, sets.texts(), method.table)
        method.require_read(drawn.tokenizer, teacher.tokenizer)
        return drawn.at
    method.require_read(source.tokenizer, teacher.tokenizer)
    taken_from_teacher, source = source is teacher, unrounded(source)
    if layers is not None or (taken_from_teacher and not method.whole):
        source = shortened(source, _layers(source, layers, method, teacher, sets))
    if any(stage.replacing is not None for stage in method.stages):
        _require_around(source, teacher)
    if method.sharing is not None:
        source = method.sharing.of(source)
    return lambda seed: source


def _require_around(student: TextModel, teacher: FineTuned) -> None:
    """Errors: UserError where what stands before and behind the blocks is not the teacher's, whose
    blocks run between it."""
    own, known = (model.model.encoder.state_dict() for model in (student, unrounded(teacher)))
    around = {name for name in own.keys() | known.keys() if not name.startswith("blocks.")}
    if not all(n in own and n in known and torch.equal(own[n], known[n]) for n in around):
        raise UserError(
            "blocks of a model are replaced by others of its own kind, and --student has other "
            "vectors of pieces: leave --student out"
        )


def _layers(
    source: TextModel, layers: int | None, method: Method, teacher: FineTuned, sets: TransferSets
) -> list[int]:
    """Which of them are taken; half where nobody has said how many."""
    depth = len(source.model.encoder.blocks)
    number = layers or usual_layers(depth)
    if method.taken != "needed":
        return layers_taken(number, depth, method.taken)
    known = len(teacher.net.encoder.blocks)
    if depth != known:
        raise UserError(
            f"which layers are needed is asked of the fine-tuned model, which has {known}, and the "
            f"student has {depth}: choose a method that takes the first, the last or some evenly"
        )
    return needed_layers(teacher, sets.train, number)
