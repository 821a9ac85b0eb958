"""Whether a method, a teacher and a student go together, by what they are made of alone: so it is
told before anything is learned or answered."""

import torch

from bertwright.compression.from_nothing import learns_words
from bertwright.compression.method import Method
from bertwright.compression.pruning import Pruned
from bertwright.compression.replacement import require_equal_parts
from bertwright.compression.signals import Comparisons
from bertwright.compression.students import require_layers, shorter, usual_layers
from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.encoder import Encoder
from bertwright.errors import UserError
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.finetuning_settings import FineTuning

ANY_VOCABULARY = 1 << 20
"""Matrices of blocks are as large whatever it is."""

Source = TextModel | str | None
"""What a user has named as the student: a model, a recipe, or nothing."""


def require_suiting(
    method: Method, teacher: EncoderChoice, student: Source, layers: int | None
) -> None:
    """Errors: UserError for layers that cannot be taken, where what is heard of the teacher,
    removed or replaced is not there in the student, and where nothing would be left of it."""
    own, first = student_choice(method, teacher, student, layers), method.stages[0]
    itself = (student or method.student) is None and layers is None and method.whole
    if (first.removing or first.bits) and not (itself and method.sharing is None):
        raise UserError(
            f"{'removing' if first.removing else 'bits'} asks what matters for the task: leave "
            f"--student and --layers out, so that the fine-tuned model itself becomes small"
        )
    if not num_layers(own) and any(stage.removing or stage.bits for stage in method.stages):
        raise UserError("there is no block of which anything could go: choose another method")
    require_taught(method, teacher, own)


def require_taught(method: Method, teacher: EncoderChoice, own: EncoderChoice) -> None:
    """Errors: UserError where a student that is ``own`` has not what is heard of the teacher, or
    replaced, masked or rounded."""
    for stage in method.stages:
        if stage.replacing is not None:
            require_equal_parts(num_layers(teacher), num_layers(own))
        adaptation = FineTuning.of(stage.settings).adaptation
        if wrong := adaptation.check(own):
            raise UserError(wrong)
        with torch.device("meta"):
            Comparisons(stage.signals, own, teacher)
            if isinstance(adaptation, Pruned):
                adaptation.changes(Encoder(own, ANY_VOCABULARY))


def require_transfer_read(method: Method, student: Source) -> None:
    """Errors: UserError for a method that reads no texts but those of the task."""
    source = student or method.student
    by_words = isinstance(source, str) and learns_words(source)
    if not by_words and not method.reads_transfer:
        raise UserError(
            "nothing reads the texts of --transfer: leave it out, or choose a method with a stage "
            "that says texts: transfer"
        )


def student_choice(
    method: Method, teacher: EncoderChoice, student: Source, layers: int | None
) -> EncoderChoice:
    """The encoder that a student begins with, before its blocks become one."""
    source = student or method.student
    if isinstance(source, str):
        if layers is not None:
            raise UserError(
                "a student that begins from nothing has the layers of its recipe: leave --layers "
                "out, or give --student a recipe of another depth"
            )
        if method.sharing is not None:
            raise UserError(
                f"layers that a model has become one: leave the recipe {source} out, or give "
                f"--student the folder of a model"
            )
        return Recipe.load(source).encoder
    choice = teacher if source is None else source.model.recipe.encoder
    if layers is None and (source is not None or method.whole):
        return choice
    number = usual_layers(num_layers(choice)) if layers is None else layers
    require_layers(number, num_layers(choice))
    return shorter(choice, range(number))


def num_layers(choice: EncoderChoice) -> int:
    """How many blocks run, one behind the other."""
    return len(choice.depth.orders())
