"""All arms are asked the same: rows and hidden places of our held-out evaluation.

A stock class answers as it was trained, from the pieces of a row alone: it sees all documents of a
row and counts positions through it, where ours keep documents apart.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from bertwright.bench.learning.arms import Arm, OurArm
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.memory import Memory
from bertwright.machine.process import usual_device
from bertwright.model.folder import load_model
from bertwright.model.model import Model, TensorBatch
from bertwright.objectives.objective import Loss, Objective
from bertwright.recipes import Recipe
from bertwright.text.shards import Data
from bertwright.training.evaluation import TOKENS_AT_END, held_out


def figures(arm: Arm, folder: Path, recipe: Recipe, data: Data) -> dict[str, float]:
    """What a trained arm knows of the held-out text; ``recipe`` says how its rows are assembled."""
    model: Model | StockAnswers
    if isinstance(arm, OurArm):
        model, _ = load_model(folder)
        recipe = model.recipe
    else:
        model = StockAnswers(folder)
    device = usual_device()
    model.to(device)
    return held_out(recipe, len(recipe.phases) - 1, data, TOKENS_AT_END).figures(model, device)


class StockAnswers(torch.nn.Module):
    """A stock ``BertForMaskedLM`` as our evaluation asks a model."""

    remembers = 0

    def __init__(self, folder: Path) -> None:
        super().__init__()
        from transformers import BertForMaskedLM

        self.stock: Any = BertForMaskedLM.from_pretrained(folder).eval()

    def losses(
        self,
        batch: TensorBatch,
        objectives: Mapping[str, Objective],
        noise: Noise | None = None,
        memory: Memory | None = None,
    ) -> dict[str, Loss]:
        """The losses at the asked places."""
        logits = self.stock(input_ids=batch.pieces).logits.flatten(0, 1)
        found: dict[str, Loss] = {}
        for name in objectives:
            asked = batch.questions[name]
            answers = logits[asked.where].float()
            each = F.cross_entropy(answers, asked.target, reduction="none")
            weight = torch.ones_like(each) if asked.weight is None else asked.weight
            right = (answers.argmax(-1) == asked.target) * weight
            found[name] = Loss((each * weight).sum(), asked.count, right.sum())
        return found
