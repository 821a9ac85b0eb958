"""From states to the outputs of a task: the small module that adaptation adds to an encoder.

Where a head reads has a name: ``first`` is the first place of the row, ``last`` the last one that
is real (where a causal encoder has read everything), ``mean`` the mean over its real places,
``last-max-mean`` these three numbers of each state side by side, with the highest in the middle
(Howard and Ruder 2018, section 3.3), ``places`` the places that are asked: the first piece of every
word, or every piece of a text. It may read several layers, and mix them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.initialisation import FanIn, Published, initialise
from bertwright.encoder.kernels.noise import Noise, dropout
from bertwright.encoder.roles import Role
from bertwright.encoder.visibility import is_by_halves, is_causal
from bertwright.errors import UserError
from bertwright.model.layers import Layers, layers_of
from bertwright.model.model import Model
from bertwright.objectives.class_question import PairHead
from bertwright.objectives.output import OutputChoice, Transform
from bertwright.objectives.sentence_relation import PairQuestion
from bertwright.recipes import Recipe
from bertwright.tasks.answers.answer import Answer

ReadOut = Literal["first", "last", "mean", "last-max-mean", "places"]
HeadMix = Literal["concat", "sum", "mean", "learned"]


def read_first(states: Tensor, document: Tensor | None, where: Tensor | None) -> Tensor:
    """states (B, L, D) to (B, D): the first place of every row."""
    return states[:, 0]


def read_last(states: Tensor, document: Tensor | None, where: Tensor | None) -> Tensor:
    """states (B, L, D) to (B, D): the last place of every row that is not padding."""
    if document is None:
        return states[:, -1]
    place = torch.arange(states.shape[1], device=states.device)
    last = torch.where(document >= 0, place, 0).amax(1)
    return states[torch.arange(len(states), device=states.device), last]


def read_mean(states: Tensor, document: Tensor | None, where: Tensor | None) -> Tensor:
    """states (B, L, D) to (B, D): the mean over the places that are not padding."""
    if document is None:
        return states.mean(1)
    real = (document >= 0).to(states.dtype)
    return torch.einsum("bld,bl->bd", states, real / real.sum(1, keepdim=True))


def read_last_max_mean(states: Tensor, document: Tensor | None, where: Tensor | None) -> Tensor:
    """states (B, L, D) to (B, 3 D)."""
    seen = states
    if document is not None:
        seen = states.masked_fill((document < 0)[..., None], torch.finfo(states.dtype).min)
    last, mean = (read(states, document, where) for read in (read_last, read_mean))
    return torch.cat((last, seen.amax(1), mean), dim=-1)


def read_places(states: Tensor, document: Tensor | None, where: Tensor | None) -> Tensor:
    """states (B, L, D) to (M, D): the flat places ``where`` (M,)."""
    assert where is not None, "a head that reads places is told which"
    return states.flatten(0, 1).index_select(0, where)


READ: dict[ReadOut, Callable[[Tensor, Tensor | None, Tensor | None], Tensor]] = {
    "first": read_first,
    "last": read_last,
    "mean": read_mean,
    "last-max-mean": read_last_max_mean,
    "places": read_places,
}

_SIDE_BY_SIDE: dict[ReadOut, int] = {"last-max-mean": 3}
"""How many numbers of each state are read."""


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


class HeadChoice(Choice):
    """The axis: what stands between the states that are read and the outputs.

    Attributes:
        layers: which are read, by the names that ``embed`` knows.
        mix: what becomes of several: ``concat``, ``sum``, ``mean``, or ``learned`` weights (Peters
            et al. 2018, equation 1).
    """

    read: ReadOut = "first"
    layers: str = "last"
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

    def read_layers(self, recipe: Recipe) -> Layers:
        """The layers, put side by side whatever becomes of them afterwards."""
        widths = recipe.encoder.widths
        layers_of(self.layers, "concat" if self.mix == "concat" else "sum", widths)
        return layers_of(self.layers, "concat", widths)

    def _width(self, recipe: Recipe) -> int:
        """Of what is read and mixed."""
        layers = self.read_layers(recipe)
        parts = 1 if self.mix == "concat" else len(layers.numbers)
        return layers.width // parts * _SIDE_BY_SIDE.get(self.read, 1)

    def _mixed(self, recipe: Recipe) -> nn.Module:
        if self.mix == "concat":
            return nn.Identity()
        number = len(self.read_layers(recipe).numbers)
        return Mix(self.mix, number, _SIDE_BY_SIDE.get(self.read, 1))


class Pooler(HeadChoice):
    """dense, tanh, dropout, out; the dense layer goes on from that of next-sentence prediction
    (Devlin et al. 2019). As the stock BertForSequenceClassification."""

    kind: Literal["pooler"] = "pooler"

    def entered(
        self, beginning: Beginning, width: int
    ) -> tuple[nn.Module, int, tuple[float, float]]:
        return TanhDense(width), width, (0.0, beginning.rate)

    @torch.no_grad()
    def inherit(self, head: "Head", model: Model) -> None:
        pairs = [pair.pooler for pair in model.heads.values() if isinstance(pair, PairHead)]
        trained = pairs[0] if pairs else model.pooler
        assert isinstance(head.enter, TanhDense)
        if trained is not None and trained.weight.shape == head.enter.dense.weight.shape:
            head.enter.dense.load_state_dict(trained.state_dict())


class Dense(HeadChoice):
    """dropout, dense, tanh, dropout, out, all of it new (Liu et al. 2019). As the stock
    RobertaForSequenceClassification."""

    kind: Literal["dense"] = "dense"

    def entered(
        self, beginning: Beginning, width: int
    ) -> tuple[nn.Module, int, tuple[float, float]]:
        return TanhDense(width), width, (beginning.rate, beginning.rate)


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


class BiLstm(HeadChoice):
    """dropout, LSTMs over the words of a row in both directions, dropout, out: the small model into
    which frozen features go (Devlin et al. 2019, section 5.3)."""

    kind: Literal["bilstm"] = "bilstm"
    read: ReadOut = "places"
    width: int = 768
    depth: int = 2

    def entered(
        self, beginning: Beginning, width: int
    ) -> tuple[nn.Module, int, tuple[float, float]]:
        lstm = OverWords(width, self.width // 2, self.depth)
        return lstm, 2 * (self.width // 2), (beginning.rate, beginning.rate)


class Head(nn.Module):
    """Reads states and answers: mix, enter, then a linear map to the outputs.

    ``rates`` are those of the dropout before and after ``enter``.
    """

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

    def forward(
        self,
        states: Tensor,
        document: Tensor | None,
        where: Tensor | None = None,
        sizes: Sequence[int] = (),
        noise: Noise | None = None,
    ) -> Tensor:
        """states (B, L, W), the layers side by side, to float32 outputs, (B, K), or (M, K) for the
        flat places ``where``, of which the rows have so many (``sizes``)."""
        return self.answer(self.read(states, document, where), sizes, noise)

    def read(self, states: Tensor, document: Tensor | None, where: Tensor | None) -> Tensor:
        """states (B, L, W) to what the head goes on with, whatever its parameters: (M, W')."""
        return READ[self.choice.read](states, document, where)

    def answer(
        self, found: Tensor, sizes: Sequence[int] = (), noise: Noise | None = None
    ) -> Tensor:
        """What was read (M, W') to outputs (M, K)."""
        before, after = self.rates
        x = dropout(self.mix(found), before, noise, 0)
        x = self.enter(x, sizes) if isinstance(self.enter, OverWords) else self.enter(x)
        return self.out(dropout(x, after, noise, 1)).float()


class TanhDense(nn.Module):
    """tanh of a dense layer: (M, D) to (M, D)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dense(x))


class Mix(nn.Module):
    """Layers to one: (M, r n D), r readings of n layers each, to (M, r D).

    Learned weights start equal, and so does the number that the whole is multiplied with, at 1.
    """

    parameter_roles: ClassVar[dict[str, Role]] = {
        "weights": Role("bias"),
        "gain": Role("gate"),
    }

    def __init__(self, how: HeadMix, number: int, readings: int) -> None:
        super().__init__()
        self.how, self.number, self.readings = how, number, readings
        if how == "learned":
            self.weights, self.gain = nn.Parameter(torch.zeros(number)), nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        layers = x.view(len(x), self.readings, self.number, -1)
        if self.how == "learned":
            shares = torch.softmax(self.weights, 0)[:, None]
            return (self.gain * (layers * shares).sum(2)).flatten(1)
        return (layers.sum(2) if self.how == "sum" else layers.mean(2)).flatten(1)


class OverWords(nn.Module):
    """LSTMs over the words of each row: (M, W) to (M, 2 H)."""

    def __init__(self, width: int, hidden: int, depth: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, depth, batch_first=True, bidirectional=True)

    @property
    def parameter_roles(self) -> dict[str, Role]:
        """Those of the gates are matrices, four one above the other."""
        return {
            f"lstm.{name}": Role("matrix", parts=4) if "weight" in name else Role("bias")
            for name, _ in self.lstm.named_parameters()
        }

    def forward(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        rows = nn.utils.rnn.pad_sequence(list(x.split(list(sizes))), batch_first=True)
        lengths = torch.tensor(sizes)
        packed = nn.utils.rnn.pack_padded_sequence(
            rows, lengths, batch_first=True, enforce_sorted=False
        )
        read, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        real = torch.arange(read.shape[1])[None] < lengths[:, None]
        return read[real.to(read.device)]


def default_head(recipe: Recipe, answer: Answer) -> HeadChoice:
    """The head with which the family of a recipe is usually fine-tuned.

    A causal encoder is read where it has read everything, one of two ways over the whole row. An
    encoder trained on pairs has a pooler; a pre-norm encoder reads through the transform of its
    output, over the whole row, since nothing taught it to gather a text in its first place.
    """
    by_halves = is_by_halves(recipe.encoder.visibility)
    causal = is_causal(recipe.encoder.visibility)
    transforms = recipe.encoder.norm.first and recipe.output.transform and not by_halves
    if answer.own_kind() == "cloze":
        return Transformed(read="places") if recipe.output.transform else Plain(read="places")
    if answer.reads == "places":
        return Transformed(read="places") if transforms else Plain(read="places")
    if answer.own_kind() == "closeness":
        return Plain(read="last" if causal and not by_halves else "mean")
    if by_halves:
        return Plain(read="mean")
    if causal:
        return Plain(read="last")
    if recipe.pooler or any(isinstance(o, PairQuestion) for o in recipe.objectives.values()):
        return Pooler()
    return Transformed(read="mean") if transforms else Dense()


def begin(head: Head, model: Model, seed: int) -> None:
    """Draw a head's parameters (deviation 0.02, as BERT's; of LSTMs by their width), then inherit
    what there is."""
    initialise(head, Published(), seed)
    if isinstance(head.enter, OverWords):
        initialise(head.enter, FanIn(gain=1.0), seed)
    head.choice.inherit(head, model)


def check_head(choice: HeadChoice, answer: Answer, output: OutputChoice) -> str | None:
    """What speaks against a head for this answer, in words."""
    if (choice.read == "places") != (answer.reads == "places"):
        known = "first, last, mean or last-max-mean"
        wanted = "places" if answer.reads == "places" else known
        return f"head.read: an answer of {answer.name} is read from {wanted}, not {choice.read}"
    if isinstance(choice, BiLstm) and choice.read != "places":
        return "head.kind: bilstm reads the words of a row: choose another for whole texts"
    if answer.own_kind() == "closeness" and not isinstance(choice, Plain):
        return "head.kind: an answer of closeness is the state that is read: choose plain"
    if answer.own_kind() == "cloze" and isinstance(choice, Transformed) != bool(output.transform):
        return "head.kind: an answer of cloze has the head of the vocabulary: leave head out"
    if isinstance(choice, Transformed) and not output.transform:
        return "head.kind: transform needs a recipe whose output has a transform"
    return None
