"""Which student a teacher can teach in pre-training."""

from hashlib import sha256

from torch import nn

from bertwright.compression.signals import Comparisons
from bertwright.compression.signals.by_layer import OfLayers
from bertwright.errors import UserError
from bertwright.model.model import Model
from bertwright.objectives.masked import Masked
from bertwright.tasks.origins import weights_told
from bertwright.training.teaching import TEACHING


def identity(model: Model) -> str:
    """What tells a teacher from another: its recipe, and a sum over its weights."""
    found = sha256()
    for each in weights_told(model):
        found.update(each)
    return f"{model.recipe.name} {found.hexdigest()[:16]}"


def what_hides(student: Model, teacher: Model) -> str:
    """The name of the one question that hides pieces; UserError where there is none such, or the
    teacher names no pieces."""
    objectives = student.recipe.objectives
    masked = [name for name, own in objectives.items() if type(own) is Masked]
    rewrites = any(own.rewrites for own in objectives.values())
    if len(masked) != 1 or rewrites or teacher.output is None:
        raise UserError(
            "a teacher that fills hidden places teaches this alone: both need the objective "
            "masked, and none that rewrites"
        )
    phases = range(len(student.recipe.phases))
    if student.recipe.phases[0].depth < 1.0:
        raise UserError("a stack that grows has no teacher: set the depth of all phases to 1")
    turns = [turn for phase in phases for turn in student.recipe.turns_of(phase)]
    if any(masked[0] not in turn.objectives for turn in turns):
        raise UserError(
            f"a teacher is asked what its student is, in every step: leave out objectives of "
            f"phases and shares of objectives but {masked[0]}"
        )
    longest = max(student.recipe.assembly_of(phase).length for phase in phases)
    most = teacher.encoder.longest
    if most is not None and most < longest:
        raise UserError(
            f"the teacher reads rows of {most} places at most, and its student is to read "
            f"{longest}: set a smaller assembly.length"
        )
    return masked[0]


def require_turns(student: Model, comparisons: Comparisons) -> None:
    depth = student.recipe.encoder.depth
    if depth.sharing != "none" or student.decoder is not None:
        raise UserError(
            "blocks that share their parameters, or are a decoder's, cannot take turns: set "
            "encoder.depth.sharing to none, and leave out turns for a decoder"
        )
    if next(comparisons.parameters(), None) is not None:
        raise UserError(
            "where blocks take turns no map is trained: the student must be as wide between its "
            "blocks as its teacher, as mobilebert and ib-bert are"
        )
    each = list(range(1, len(depth.orders()) + 1))
    for own in comparisons.each:
        if isinstance(own, OfLayers) and [layer for layer, _ in own.pairs] != each:
            raise UserError(
                "where blocks take turns every block has one partner: leave out layers.pairs, "
                "layers.which and layers.embeddings"
            )


def require_alike(student: Model, teacher: Model) -> None:
    theirs = dict(teacher.named_parameters())
    for name, own in around(student).items():
        there = theirs.get(name)
        shape = None if there is None else tuple(there.shape)
        needed = name.startswith(("encoder.", "output."))
        if shape != tuple(own.shape) and (needed or there is not None):
            raise UserError(
                f"the student cannot begin with what its teacher has around its blocks: {name} is "
                f"{tuple(own.shape)} here and {shape or 'not'} there; choose the same embeddings "
                f"and the same output"
            )


def around(model: Model) -> dict[str, nn.Parameter]:
    """The parameters of no block, by name."""
    inside = ("encoder.blocks.", TEACHING)
    return {n: p for n, p in model.named_parameters() if not n.startswith(inside)}
