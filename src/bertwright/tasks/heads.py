"""From states to the outputs of a task: the small module that adaptation adds to an encoder.

A head reads one layer or several, and mixes them; :mod:`~bertwright.tasks.reading_out` says where.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.feed_forward import ACTIVATIONS
from bertwright.encoder.initialisation import FanIn, Published, initialise
from bertwright.encoder.kernels.noise import Noise, dropout
from bertwright.errors import UserError
from bertwright.model.layers import Layers, layers_of
from bertwright.model.model import Model
from bertwright.objectives.class_question import PairHead
from bertwright.objectives.output import Transform
from bertwright.recipes import Recipe
from bertwright.tasks.head_parts import ActivatedDense, HeadMix, Mix, OverWords
from bertwright.tasks.reading_out import READ_ROWS, SIDE_BY_SIDE, ReadOut, read_places
from bertwright.tasks.standard import Maps, Standard


@dataclass(frozen=True)
class Beginning:
    """What a head is made for.

    Attributes:
        recipe: of the encoder.
        num_outputs: of the task; 0 where what is read is the answer.
        rate: of dropout.
    """

    recipe: Recipe
    num_outputs: int
    rate: float = 0.0


LayersSaid = Annotated[str, BeforeValidator(lambda said: str(said) if type(said) is int else said)]
"""Layers by the names that ``embed`` knows; YAML reads a single one as a number."""


class HeadChoice(Choice):
    """The axis: what stands between the states that are read and the outputs.

    Attributes:
        layers: which are read.
        mix: what becomes of several: ``concat``, ``sum``, ``mean``, or ``learned`` weights (Peters
            et al. 2018, equation 1).
    """

    read: ReadOut = "first"
    layers: LayersSaid = "last"
    mix: HeadMix = "concat"

    def build(self, beginning: Beginning) -> "Head":
        """The module."""
        width = self._width(beginning.recipe)
        enter, out_width, rates = self.entered(beginning, width)
        return Head(self, enter, self._mixed(beginning.recipe), out_width, beginning, rates)

    def entered(
        self, beginning: Beginning, width: int
    ) -> tuple[nn.Module, int, tuple[float, float]]:
        """What stands before the linear map, how wide it ends, and the dropout before and after it;
        ``width`` is that of what is read."""
        raise TypeError(f"{type(self).__name__} is an axis, not a head")

    def inherit(self, head: "Head", model: Model) -> None:
        """Take over what a pre-trained model has of this head."""

    def first_maps(self, head: "Head") -> Maps:
        """The linear maps that read the states, of a head that is drawn anew; none of one that goes
        on from what was trained on states as they are."""
        return ()

    def read_layers(self, recipe: Recipe) -> Layers:
        """The layers, put side by side whatever becomes of them afterwards."""
        widths = recipe.encoder.widths
        try:
            layers_of(self.layers, "concat" if self.mix == "concat" else "sum", widths)
            return layers_of(self.layers, "concat", widths)
        except UserError as error:
            raise UserError(f"head.layers: {error}") from error

    def _width(self, recipe: Recipe) -> int:
        """Of what is read and mixed."""
        layers = self.read_layers(recipe)
        parts = 1 if self.mix == "concat" else len(layers.numbers)
        return layers.width // parts * SIDE_BY_SIDE.get(self.read, 1)

    def _mixed(self, recipe: Recipe) -> nn.Module:
        if self.mix == "concat":
            return nn.Identity()
        number = len(self.read_layers(recipe).numbers)
        return Mix(self.mix, number, SIDE_BY_SIDE.get(self.read, 1))


class Pooler(HeadChoice):
    """dense, tanh, dropout, out; the dense layer goes on from that of next-sentence prediction
    (Devlin et al. 2019). As the stock BertForSequenceClassification."""

    kind: Literal["pooler"] = "pooler"

    def entered(
        self, beginning: Beginning, width: int
    ) -> tuple[nn.Module, int, tuple[float, float]]:
        return ActivatedDense(width), width, (0.0, beginning.rate)

    @torch.no_grad()
    def inherit(self, head: "Head", model: Model) -> None:
        pairs = [pair.pooler for pair in model.heads.values() if isinstance(pair, PairHead)]
        trained = pairs[0] if pairs else model.pooler
        assert isinstance(head.enter, ActivatedDense)
        if trained is not None and trained.weight.shape == head.enter.dense.weight.shape:
            head.enter.dense.load_state_dict(trained.state_dict())


class Dense(HeadChoice):
    """dropout, dense, activation, dropout, out, all of it new (Liu et al. 2019). As the stock
    RobertaForSequenceClassification, with tanh; ELECTRA has gelu, DistilBERT relu, BigBird that of
    the feed-forward sublayers, which is ``encoder``."""

    kind: Literal["dense"] = "dense"
    activation: Literal["tanh", "gelu", "relu", "encoder"] = "tanh"

    def entered(
        self, beginning: Beginning, width: int
    ) -> tuple[nn.Module, int, tuple[float, float]]:
        name = self.activation
        if name == "encoder":
            name = beginning.recipe.encoder.feed_forward.activation
        activation = torch.tanh if name == "tanh" else ACTIVATIONS[name]
        return ActivatedDense(width, activation), width, (beginning.rate, beginning.rate)

    def first_maps(self, head: "Head") -> Maps:
        assert isinstance(head.enter, ActivatedDense)
        return [(head.enter.dense.weight, head.enter.dense.bias)]


class Transformed(HeadChoice):
    """dense, activation, norm, dropout, out; all but out goes on from the transform before the
    vocabulary (Warner et al. 2024). As the stock ModernBERT heads."""

    kind: Literal["transform"] = "transform"

    def entered(
        self, beginning: Beginning, width: int
    ) -> tuple[nn.Module, int, tuple[float, float]]:
        recipe = beginning.recipe
        if width != recipe.encoder.width:
            raise UserError("head.kind: transform reads one layer at one place: choose dense")
        enter = Transform(recipe.output, recipe.encoder)
        return enter, recipe.output.width(recipe.encoder), (0.0, beginning.rate)

    @torch.no_grad()
    def inherit(self, head: "Head", model: Model) -> None:
        if model.output is not None and isinstance(model.output.transform, Transform):
            head.enter.load_state_dict(model.output.transform.state_dict())


class Plain(HeadChoice):
    """dropout, out. As the stock token classification of BERT and RoBERTa."""

    kind: Literal["plain"] = "plain"

    def entered(
        self, beginning: Beginning, width: int
    ) -> tuple[nn.Module, int, tuple[float, float]]:
        return nn.Identity(), width, (beginning.rate, 0.0)

    def first_maps(self, head: "Head") -> Maps:
        return [(head.out.weight, head.out.bias)] if isinstance(head.out, nn.Linear) else ()


class BiLstm(HeadChoice):
    """dropout, LSTMs over the words of a row in both directions, dropout, out: the small model into
    which frozen features go (Devlin et al. 2019, section 5.3)."""

    kind: Literal["bilstm"] = "bilstm"
    read: ReadOut = "places"
    width: int = Field(default=768, ge=2, le=65_536)
    depth: int = Field(default=2, ge=1, le=64)

    def entered(
        self, beginning: Beginning, width: int
    ) -> tuple[nn.Module, int, tuple[float, float]]:
        lstm = OverWords(width, self.width // 2, self.depth)
        return lstm, 2 * (self.width // 2), (beginning.rate, beginning.rate)

    def first_maps(self, head: "Head") -> Maps:
        assert isinstance(head.enter, OverWords)
        return head.enter.first_maps


class Head(nn.Module):
    """Reads states and answers: mix, enter, then a linear map to the outputs.

    ``rates`` are those of the dropout before and after ``enter``. ``standard`` is the form in which
    what is mixed goes on while the head is trained on states that stay as they are.
    """

    standard: Standard | None = None

    def __init__(
        self,
        choice: HeadChoice,
        enter: nn.Module,
        mix: nn.Module,
        width: int,
        beginning: Beginning,
        rates: tuple[float, float],
    ) -> None:
        super().__init__()
        self.choice, self.rates = choice, rates
        self.layers = choice.read_layers(beginning.recipe)
        self.mix, self.enter = mix, enter
        number = beginning.num_outputs
        self.out: nn.Module = nn.Linear(width, number) if number else nn.Identity()

    @property
    def first_maps(self) -> Maps:
        """Those that may read states in standard form."""
        return self.choice.first_maps(self)

    def places(
        self, pieces: Tensor, document: Tensor | None, where: Tensor | None = None
    ) -> Tensor | None:
        """The flat places (M,) of pieces (B, L) whose states alone it reads, ``where`` being those
        that are asked; None where it reads whole rows."""
        return read_places(self.choice.read, pieces, document, where)

    def forward(
        self,
        states: Tensor,
        document: Tensor | None,
        sizes: Sequence[int] = (),
        noise: Noise | None = None,
    ) -> Tensor:
        """states (B, L, W), the layers side by side, or (M, W) of its ``places``, to float32
        outputs, (B, K), or (M, K) where the rows have so many places (``sizes``)."""
        return self.answer(self.read(states, document), sizes, noise)

    def read(self, states: Tensor, document: Tensor | None) -> Tensor:
        """The same states to what the head goes on with, whatever its parameters: (M, W')."""
        rows = READ_ROWS.get(self.choice.read)
        return states if rows is None else rows(states, document)

    def answer(
        self, found: Tensor, sizes: Sequence[int] = (), noise: Noise | None = None
    ) -> Tensor:
        """What was read (M, W') to outputs (M, K)."""
        before, after = self.rates
        x = self.mix(found)
        x = x if self.standard is None else self.standard(x)
        x = dropout(x, before, noise, 0)
        x = self.enter(x, sizes) if isinstance(self.enter, OverWords) else self.enter(x)
        return self.out(dropout(x, after, noise, 1)).float()


def begin(head: Head, model: Model | None, seed: int) -> None:
    """Draw a head's parameters (deviation 0.02, as BERT's; of LSTMs by their width), then inherit
    what a model has of it."""
    initialise(head, Published(), seed)
    if isinstance(head.enter, OverWords):
        initialise(head.enter, FanIn(gain=1.0), seed)
    if model is not None:
        head.choice.inherit(head, model)


def go_on(head: Head, tuned: Head) -> bool:
    """Let a head begin with the first part of one that was trained for another task, whether there
    is such a part: they are alike but for where they read."""
    like = tuned.choice.model_copy(update={"read": head.choice.read}) == head.choice
    shapes = shapes_of(head.enter)
    if not (like and shapes and shapes == shapes_of(tuned.enter)):
        return False
    head.mix.load_state_dict(tuned.mix.state_dict())
    head.enter.load_state_dict(tuned.enter.state_dict())
    return True


def shapes_of(module: nn.Module) -> dict[str, torch.Size]:
    """Of its parameters, by name."""
    return {name: tensor.shape for name, tensor in module.state_dict().items()}
