"""A language model beside the task: a causal encoder goes on naming the next pieces of what it
reads while it learns to answer (Radford et al. 2018, section 3.2)."""

from collections.abc import Sequence

from torch import Tensor

from bertwright.encoder.visibility import is_by_halves, is_causal
from bertwright.model.text_model import TextModel
from bertwright.objectives.objective import Loss
from bertwright.objectives.output import Output
from bertwright.tasks.encoding import TaskRow
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.heads import HeadChoice

NEXT_PIECES = "next pieces"
"""The name of the question."""


def check_language_model(
    model: TextModel, chosen: FineTuning, heads: Sequence[HeadChoice]
) -> str | None:
    """What speaks against asking for next pieces as well, in words."""
    recipe = model.model.recipe
    visibility = recipe.encoder.visibility
    if model.model.output is None or not is_causal(visibility) or is_by_halves(visibility):
        return f"language_model: {recipe.name} was not trained to read on: leave it at 0"
    if chosen.adaptation.adds:
        return "language_model trains what names pieces: choose adaptation full, last or gradual"
    if chosen.perturbation is not None:
        return "language_model and perturbation do not go together: leave one of them out"
    if any(
        head.read_layers(recipe).numbers[-1] != len(recipe.encoder.widths) - 1 for head in heads
    ):
        return "language_model reads the last layer, which head.layers leaves out"
    return None


def num_next_pieces(rows: Sequence[TaskRow]) -> int:
    """How many pieces follow another in these rows."""
    return sum(len(row.pieces) - 1 for row in rows)


def next_pieces_loss(
    output: Output, table: Tensor, states: Tensor, pieces: Tensor, document: Tensor
) -> Loss:
    """The loss of naming what follows every place, of states (B, L, D), pieces and documents (B, L)
    int64, where padding has document -1."""
    follows = document[:, 1:] >= 0
    target = pieces[:, 1:][follows]
    loss, right = output.loss(states[:, :-1][follows], table, target, None)
    return Loss(loss, float(len(target)), right)
