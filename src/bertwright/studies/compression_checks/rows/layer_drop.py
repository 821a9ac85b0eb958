"""Students of two of four layers, whichever they are and whatever they hear, in one picture."""

import numpy as np
import torch

from bertwright.analysis.planted.expecting import equal, same
from bertwright.compression.needed_layers import AT_ONCE, losses_without_layers, needed_layers
from bertwright.compression.quantisation.losses import asked, mean_loss
from bertwright.compression.students import shortened, with_layers
from bertwright.encoder.encoder import Encoder
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
    yield from _needed(ground)
    for taken in ("first", "last", "even", "needed"):
        method = ground.method(f"c17-{taken}", {"taken": taken, "stages": [{}]})
        found = ground.compressed(teacher, method, given=given, layers=2)
        yield Measured(f"accuracy, {taken} layers stay", found.scores, *beside)
    for method in ("pkd-skip", "theseus-linear"):
        found = ground.compressed(teacher, method, given=given, layers=2)
        yield Measured(f"accuracy, {method}", found.scores, *beside)


def _needed(ground: Ground) -> Came:
    """Nothing is lost without a layer that does nothing, and it is not among those that stay."""
    model = ground.tuned(TASK)
    _silence(model.net.encoder, 1)
    examples = ground.judge(TASK)
    lost = losses_without_layers(model, examples)
    whole = mean_loss(asked(model, examples, AT_ONCE))
    yield equal("loss without a layer that does nothing", lost[1], whole, 1e-6)
    least = int(np.argmin(lost))
    wanted = [layer for layer in range(4) if layer != least]
    yield same("layers that are needed", needed_layers(model, examples, 3), wanted)


def _without_what_does_nothing(ground: Ground) -> Came:
    """A layer that adds nothing can go: the states are the same, and it is counted no more."""
    recipe = ground.recipe("encoder.norm.placement=pre")
    model = Model.build(recipe, ground.data.tokenizer.size).double()
    _silence(model.encoder, 1)
    small = with_layers(model, [0, 2, 3])
    pieces = torch.randint(5, 90, (3, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        states = [each.encoder.double()(pieces).numpy() for each in (model, small)]
    yield equal("states without a layer that does nothing", states[0], states[1], 1e-6)
    yield same("layers that are left", len(small.recipe.encoder.depth.orders()), 3)


@torch.no_grad()
def _silence(encoder: Encoder, layer: int) -> None:
    """Let a layer add nothing."""
    for last in ("attention.output", "feed_forward.down"):
        for parameter in encoder.blocks[layer].get_submodule(f"sublayers.{last}").parameters():
            parameter.zero_()


ROW = Row(
    "C17",
    "layer-drop",
    "Which layers should stay, and is it worth hearing the teacher?",
    "Sajjad et al. 2020",
    run,
)
