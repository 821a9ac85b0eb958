"""Students of two of four layers, whichever they are and whatever they hear, in one picture."""

import torch

from bertwright.analysis.planted.expecting import equal, same
from bertwright.compression.students import shortened, with_layers
from bertwright.model.model import Model
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row

TASK = "inference"


def run(ground: Ground) -> Came:
    """Layers of the fine-tuned model are left out, and the rest goes on learning; beside it those
    of the pre-trained one, and students that are taught."""
    yield from _without_what_does_nothing(ground)
    teacher, given = ground.tuned(TASK), ground.given(TASK, 2 * ground.size.few)
    student = shortened(ground.pretrained, [0, 1])
    cut = ground.compressed(teacher, "layer-drop", given=given, student=student)
    beside = "the first two of the pre-trained model", cut.scores
    yield Measured("accuracy, teacher", [cut.of_teacher])
    for taken in ("first", "last", "even"):
        method = ground.method(f"c17-{taken}", {"taken": taken, "stages": [{}]})
        found = ground.compressed(teacher, method, given=given, layers=2)
        yield Measured(f"accuracy, {taken} layers stay", found.scores, *beside)
    for method in ("pkd-skip", "theseus-linear"):
        found = ground.compressed(teacher, method, given=given, layers=2)
        yield Measured(f"accuracy, {method}", found.scores, *beside)


def _without_what_does_nothing(ground: Ground) -> Came:
    """A layer that adds nothing can go: the states are the same, and it is counted no more."""
    recipe = ground.recipe("encoder.norm.placement=pre")
    model = Model.build(recipe, ground.data.tokenizer.size).double()
    with torch.no_grad():
        for last in ("attention.output", "feed_forward.down"):
            for parameter in (
                model.encoder.blocks[1].get_submodule(f"sublayers.{last}").parameters()
            ):
                parameter.zero_()
    small = with_layers(model, [0, 2, 3])
    pieces = torch.randint(5, 90, (3, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        states = [each.encoder.double()(pieces).numpy() for each in (model, small)]
    yield equal("states without a layer that does nothing", states[0], states[1], 1e-6)
    yield same("layers that are left", len(small.recipe.encoder.depth.orders()), 3)


ROW = Row(
    "C17",
    "layer-drop",
    "Which layers should stay, and is it worth hearing the teacher?",
    "Sajjad et al. 2020",
    run,
)
