"""Held-out evaluation of all arms on the same sequences and masked positions.

A stock class reads token ids only, as in its training: it attends across the documents of a
sequence and numbers positions through it, where bertwright separates documents.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F

from benchmarks.learning.arms import Arm, BertwrightArm
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import DeviceBatch, Model
from bertwright.models.saving import load_model
from bertwright.modules.attention.cache import Memory
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.objectives.model_output import Loss
from bertwright.objectives.objective import Objective
from bertwright.recipes import Recipe
from bertwright.runtime.process import default_device
from bertwright.training.evaluation.held_out import NUM_TOKENS_AT_END, make_held_out_evaluation


def evaluate_arm(arm: Arm, folder: Path, recipe: Recipe, data: Dataset) -> dict[str, float]:
    """Return the held-out metrics of an arm; ``recipe`` states the input format of the Trainer."""
    model: Model | StockMaskedLM
    if isinstance(arm, BertwrightArm):
        model, _ = load_model(folder)
        recipe = model.recipe
    else:
        model = StockMaskedLM(folder, recipe)
    device = default_device()
    model.to(device)
    return make_held_out_evaluation(
        recipe, len(recipe.phases) - 1, data, NUM_TOKENS_AT_END
    ).compute_metrics(cast(Model, model), device)


class StockMaskedLM(torch.nn.Module):
    """A stock masked language model with the interface of our evaluation; it has no memory."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe
        from transformers import AutoModelForMaskedLM

        self.stock: Any = AutoModelForMaskedLM.from_pretrained(folder).eval()

    def losses(
        self,
        batch: DeviceBatch,
        objectives: Mapping[str, Objective],
        dropout_rng: DropoutRng | None = None,
        memory: Memory | None = None,
    ) -> dict[str, Loss]:
        """Return the losses at the masked positions."""
        logits = self.stock(input_ids=batch.token_ids).logits.flatten(0, 1)
        losses: dict[str, Loss] = {}
        for name in objectives:
            targets = batch.targets[name]
            predictions = logits[targets.positions].float()
            loss = F.cross_entropy(predictions, targets.labels, reduction="none")
            weights = torch.ones_like(loss) if targets.weights is None else targets.weights
            correct = (predictions.argmax(-1) == targets.labels) * weights
            losses[name] = Loss((loss * weights).sum(), targets.total_weight, correct.sum())
        return losses
