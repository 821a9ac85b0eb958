"""A task is learned by an encoder whose weights are whole numbers of few bits, and perhaps what
they are multiplied with, too.

Q8BERT and Q-BERT are settings of it. What is learned are the weights before they are rounded; the
finished model has those behind it, and the ranges of its activations beside them.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import Field, ValidationError
from torch import nn

from bertwright.axes import Settings, explain
from bertwright.compression.quantisation.granularity import Granularity, Row
from bertwright.compression.quantisation.learning import Learning
from bertwright.compression.quantisation.observers import Moving, Observer
from bertwright.compression.quantisation.rounding import (
    ByToken,
    RoundedLinear,
    Rounding,
    WithinRange,
)
from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.roles import roles
from bertwright.model.folder import fill
from bertwright.model.grids import BITS, Grid, Scheme
from bertwright.model.text_model import TextModel
from bertwright.tasks.adaptation import Adaptation, Full
from bertwright.tasks.adaptation.changes import Changes
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.task_model import TaskModel

AnyModel = TypeVar("AnyModel", bound=TextModel)

Bits = Annotated[int, Field(ge=BITS[0], le=BITS[1])]


class Activations(Settings):
    """How what linear layers read and write is rounded.

    ``at`` says which of both. ``ranges`` are ``static``, as the ``observer`` has seen them in
    training until ``settled`` of it was over, or those of each ``token`` by itself.
    """

    bits: Bits = 8
    scheme: Scheme = "symmetric"
    at: tuple[Literal["inputs", "outputs"], ...] = ("inputs", "outputs")
    ranges: Literal["static", "token"] = "static"
    observer: Observer = Moving()
    settled: float = Field(default=1.0, gt=0, le=1)

    def rounding(self, parts: int, clipped: bool) -> Rounding:
        """Of values that have so many parts."""
        kind = WithinRange if self.ranges == "static" else ByToken
        return kind(parts, self.bits, self.scheme, clipped)


class Quantised(Adaptation):
    """Everything is trained, through rounding.

    The matrices of a block have ``bits``, one number for all blocks or one for each; tables, and
    matrices outside of blocks, ``outside``. Of matrices the weights that ``by`` says share a scale,
    of tables those of a row. ``activations`` says how what linear layers read and write is rounded,
    None that it is not. Norms, biases, softmax, activation functions and the head are computed as
    ever. Gradients pass through rounding, but if ``clipped`` not where a value is beyond the range.
    Nothing is rounded before the share ``start`` of the training is over.
    """

    kind: Literal["quantised"] = "quantised"
    bits: Bits | tuple[Bits, ...] = 8
    outside: Bits = 8
    by: Granularity = Row()
    scheme: Scheme = "symmetric"
    activations: Activations | None = None
    clipped: bool = True
    start: float = Field(default=0.0, ge=0, le=1)

    @staticmethod
    def of(settings: Mapping[str, Any]) -> "Quantised":
        """Checked settings; UserError that names what is wrong."""
        try:
            return Quantised.model_validate(dict(settings))
        except ValidationError as error:
            raise explain(error, "quantised") from error

    def check(self, encoder: EncoderChoice) -> str | None:
        blocks = len(encoder.widths) - 1
        if isinstance(self.bits, tuple) and len(self.bits) != blocks:
            return (
                f"adaptation.bits: {len(self.bits)} numbers for {blocks} blocks: give one number, "
                f"or one for each block"
            )
        return None

    def insert(self, encoder: Encoder) -> None:
        if self.activations is not None:
            round_linears(encoder, self.activations, self.clipped)

    def changes(self, encoder: Encoder) -> Changes:
        roundings = [module for module in encoder.modules() if isinstance(module, Rounding)]
        seen = self.activations
        return Learning(
            self.grids(encoder),
            roundings,
            None if seen is None or seen.ranges == "token" else seen.observer,
            self.clipped,
            self.start,
            1.0 if seen is None else seen.settled,
        )

    def grids(self, encoder: Encoder) -> dict[str, Grid]:
        known, found = dict(encoder.named_parameters()), dict[str, Grid]()
        for name, role in roles(encoder).items():
            shape = known[name].shape
            if role.kind == "table" and len(shape) == 2:
                found[name] = Grid(self.outside, 1, shape[1], self.scheme)
            if role.kind == "matrix" and len(shape) == 2:
                group = self.by.group(shape, role.parts)
                found[name] = Grid(self._bits_at(role.depth), *group, self.scheme)
        return found

    def _bits_at(self, depth: int | None) -> int:
        """Of the matrices at a depth: that of a block, or before or behind them all."""
        if depth is None or depth < 0:
            return self.outside
        return self.bits if isinstance(self.bits, int) else self.bits[depth]


def round_linears(encoder: Encoder, activations: Activations, clipped: bool = True) -> None:
    """Put linear layers that round in the place of those of an encoder. One that several blocks
    share stays one, whose ranges are of all its uses."""
    parts = {id(known): roles(encoder)[n].parts for n, known in encoder.named_parameters()}
    made: dict[int, RoundedLinear] = {}

    def rounding(at: Literal["inputs", "outputs"], number: int) -> nn.Module:
        return activations.rounding(number, clipped) if at in activations.at else nn.Identity()

    for module in list(encoder.modules()):
        for name, child in list(module.named_children()):
            if type(child) is not nn.Linear:
                continue
            if id(child) not in made:
                written = parts[id(child.weight)]
                reads, writes = rounding("inputs", 1), rounding("outputs", written)
                made[id(child)] = RoundedLinear(child, reads, writes)
            setattr(module, name, made[id(child)])


def unrounded(model: AnyModel) -> AnyModel:
    """The same weights, on their grids, in a model that rounds nothing between them; a model that
    does not is given back as it is."""
    if not any(isinstance(module, Rounding) for module in model.model.encoder.modules()):
        return model
    assert isinstance(model, FineTuned), "only what has learned a task rounds activations"
    net = model.net
    plain = TaskModel.empty(net.recipe, net.vocabulary_size, net.plan, Full())
    wanted = {*dict(plain.named_parameters()), *dict(plain.named_buffers())}
    fill(plain, {n: t for n, t in net.state_dict().items() if n in wanted}, net.recipe.name)
    about = model.task, model.maker.length, model.precision, model.temperature
    return cast(AnyModel, FineTuned(plain, model.tokenizer, *about))
