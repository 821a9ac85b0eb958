"""From states to the answer of a task: the small module that fine-tuning adds to an encoder.

Where a head reads has a name: ``first`` is the first place of the row, ``last`` the last one that
is real (where a causal encoder has read everything), ``mean`` the mean over its real places,
``words`` the first piece of every word.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.initialisation import Published, initialise
from bertwright.encoder.kernels.noise import Noise, dropout
from bertwright.encoder.visibility import is_by_halves, is_causal
from bertwright.model.model import Model
from bertwright.objectives.class_question import PairHead
from bertwright.objectives.output import OutputChoice, Transform
from bertwright.objectives.sentence_relation import PairQuestion
from bertwright.recipes import Recipe
from bertwright.tasks.task import Answer

ReadOut = Literal["first", "last", "mean", "words"]


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


def read_words(states: Tensor, document: Tensor | None, where: Tensor | None) -> Tensor:
    """states (B, L, D) to (M, D): the flat places ``where`` (M,), the first piece of each word."""
    assert where is not None, "a head that reads words is told where they begin"
    return states.flatten(0, 1).index_select(0, where)


READ: dict[ReadOut, Callable[[Tensor, Tensor | None, Tensor | None], Tensor]] = {
    "first": read_first,
    "last": read_last,
    "mean": read_mean,
    "words": read_words,
}


class HeadChoice(Choice):
    """The axis: what stands between the states that are read and the outputs."""

    read: ReadOut = "first"

    def build(self, recipe: Recipe, num_outputs: int, rate: float) -> "Head":
        """The module; ``rate`` is that of its dropout."""
        raise TypeError(f"{type(self).__name__} is an axis, not a head")

    def inherit(self, head: "Head", model: Model) -> None:
        """Take over what a pre-trained model has of this head."""


class Pooler(HeadChoice):
    """dense, tanh, dropout, out; the dense layer goes on from that of next-sentence prediction
    (Devlin et al. 2019). As the stock BertForSequenceClassification."""

    kind: Literal["pooler"] = "pooler"

    def build(self, recipe: Recipe, num_outputs: int, rate: float) -> "Head":
        width = recipe.encoder.width
        return Head(self.read, TanhDense(width), width, num_outputs, (0.0, rate))

    @torch.no_grad()
    def inherit(self, head: "Head", model: Model) -> None:
        pairs = [pair.pooler for pair in model.heads.values() if isinstance(pair, PairHead)]
        trained = pairs[0] if pairs else model.pooler
        if trained is not None and isinstance(head.enter, TanhDense):
            head.enter.dense.load_state_dict(trained.state_dict())


class Dense(HeadChoice):
    """dropout, dense, tanh, dropout, out, all of it new (Liu et al. 2019). As the stock
    RobertaForSequenceClassification."""

    kind: Literal["dense"] = "dense"

    def build(self, recipe: Recipe, num_outputs: int, rate: float) -> "Head":
        width = recipe.encoder.width
        return Head(self.read, TanhDense(width), width, num_outputs, (rate, rate))


class Transformed(HeadChoice):
    """dense, activation, norm, dropout, out; all but out goes on from the transform before the
    vocabulary (Warner et al. 2024). As the stock ModernBERT heads."""

    kind: Literal["transform"] = "transform"

    def build(self, recipe: Recipe, num_outputs: int, rate: float) -> "Head":
        enter = Transform(recipe.output, recipe.encoder)
        width = recipe.output.width(recipe.encoder)
        return Head(self.read, enter, width, num_outputs, (0.0, rate))

    @torch.no_grad()
    def inherit(self, head: "Head", model: Model) -> None:
        if model.output is not None and isinstance(model.output.transform, Transform):
            head.enter.load_state_dict(model.output.transform.state_dict())


class Plain(HeadChoice):
    """dropout, out. As the stock token classification of BERT and RoBERTa."""

    kind: Literal["plain"] = "plain"

    def build(self, recipe: Recipe, num_outputs: int, rate: float) -> "Head":
        return Head(self.read, nn.Identity(), recipe.encoder.width, num_outputs, (rate, 0.0))


class Head(nn.Module):
    """Reads states and answers: enter, then a linear map to the outputs.

    ``rates`` are those of the dropout before and after ``enter``.
    """

    def __init__(
        self,
        read: ReadOut,
        enter: nn.Module,
        width: int,
        num_outputs: int,
        rates: tuple[float, float],
    ) -> None:
        super().__init__()
        self.read: ReadOut = read
        self.rates = rates
        self.enter = enter
        self.out = nn.Linear(width, num_outputs)

    def forward(
        self,
        states: Tensor,
        document: Tensor | None,
        where: Tensor | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        """states (B, L, D) to float32 outputs, (B, K), or (M, K) for the words at ``where``."""
        before, after = self.rates
        x = dropout(READ[self.read](states, document, where), before, noise, 0)
        return self.out(dropout(self.enter(x), after, noise, 1)).float()


class TanhDense(nn.Module):
    """tanh of a dense layer: (M, D) to (M, D)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dense(x))


def default_head(recipe: Recipe, answer: Answer) -> HeadChoice:
    """The head with which the family of a recipe is usually fine-tuned.

    A causal encoder is read where it has read everything, one of two ways over the whole row. An
    encoder trained on pairs has a pooler; a pre-norm encoder reads through the transform of its
    output, over the whole row, since nothing taught it to gather a text in its first place.
    """
    by_halves = is_by_halves(recipe.encoder.visibility)
    transforms = recipe.encoder.norm.first and recipe.output.transform and not by_halves
    if answer == "tags":
        return Transformed(read="words") if transforms else Plain(read="words")
    if by_halves:
        return Plain(read="mean")
    if is_causal(recipe.encoder.visibility):
        return Plain(read="last")
    if recipe.pooler or any(isinstance(o, PairQuestion) for o in recipe.objectives.values()):
        return Pooler()
    return Transformed(read="mean") if transforms else Dense()


def begin(head: Head, choice: HeadChoice, model: Model, seed: int) -> None:
    """Draw a head's parameters (deviation 0.02, as BERT's), then inherit what there is."""
    initialise(head, Published(), seed)
    choice.inherit(head, model)


def check_head(choice: HeadChoice, answer: Answer, output: OutputChoice) -> str | None:
    """What speaks against a head for this answer, in words."""
    if (choice.read == "words") != (answer == "tags"):
        wanted = "words" if answer == "tags" else "first, last or mean"
        return f"head.read: an answer of {answer} is read from {wanted}, not {choice.read}"
    if isinstance(choice, Transformed) and not output.transform:
        return "head.kind: transform needs a recipe whose output has a transform"
    return None
