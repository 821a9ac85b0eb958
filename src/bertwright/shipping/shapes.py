"""How much of a model stays: some of its layers, and of their heads and units a share."""

from dataclasses import dataclass

from bertwright.compression.method import Method
from bertwright.compression.quantisation import unrounded
from bertwright.compression.quantisation.losses import asked, mean_loss
from bertwright.compression.structure import Removing, cut_fine_tuned, first_kept
from bertwright.compression.students import layers_taken, shorter, with_layers
from bertwright.compression.suiting import require_taught
from bertwright.randomness import sample
from bertwright.tasks.adaptation import Full
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.task_model import TaskModel

SHARES = (1.0, 0.75, 0.5, 0.25)
"""Of heads and of units that stay."""

MOST_EXAMPLES, AT_ONCE = 512, 32
"""Examples by which it is seen what matters, and how many of them together."""


@dataclass(frozen=True)
class Shape:
    """So many ``layers``, and a ``share`` of their heads and units."""

    layers: int
    share: float = 1.0

    @property
    def name(self) -> str:
        """In words."""
        layers = f"{self.layers} layer{'' if self.layers == 1 else 's'}"
        return layers if self.share == 1 else f"{layers}, {self.share:.0%} of heads and units"


def whole(model: FineTuned) -> Shape:
    """That of a model as it is."""
    return Shape(len(model.net.encoder.blocks))


def require_taught_as(shape: Shape, model: FineTuned, method: Method) -> None:
    """Errors: UserError where a model cannot be made so small, or a method cannot teach it then."""
    encoder = model.net.recipe.encoder
    left = encoder
    if shape.layers < whole(model).layers:
        left = shorter(left, range(shape.layers))
    if shape.share < 1:
        left = first_kept(left, 1 - shape.share).cut(left)
    require_taught(method, encoder, left)


def blank(model: FineTuned, shape: Shape) -> FineTuned:
    """One of the right size, whatever it knows: the first heads and units."""
    if shape == whole(model):
        return model
    small = _shortened(model, shape.layers)
    if shape.share == 1:
        return small
    return cut_fine_tuned(small, first_kept(small.net.recipe.encoder, 1 - shape.share))


def left_of(model: FineTuned, shape: Shape, examples: Examples) -> FineTuned:
    """Layers from the first to the last of a model, and of their heads and units those with which
    the loss of the examples changes most; it has its head, and has learned nothing since."""
    small, gone = _shortened(model, shape.layers), 1 - shape.share
    if not gone:
        return small
    removing = Removing(heads=gone, units=gone, examples=MOST_EXAMPLES)
    return removing.left_of(small, examples)


def loss_of(model: FineTuned, examples: Examples) -> float:
    """The mean over some of these examples."""
    return mean_loss(asked(model, sample(examples, MOST_EXAMPLES), AT_ONCE))


def _shortened(model: FineTuned, layers: int) -> FineTuned:
    model, depth = unrounded(model), len(model.net.encoder.blocks)
    if layers == depth:
        return model
    known = with_layers(model.model, layers_taken(layers, depth))
    net = TaskModel(known.recipe, known.vocabulary_size, model.net.plan, Full())
    net.encoder.load_state_dict(known.encoder.state_dict())
    net.head.load_state_dict(model.net.head.state_dict())
    length = model.maker.length
    return FineTuned(net, model.tokenizer, model.task, length, model.precision, model.temperature)
