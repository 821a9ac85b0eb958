"""What an encoder for long rows takes from one for short rows (Beltagy et al. 2020, section 5)."""

import torch
from torch import Tensor

from bertwright.encoder.positions import Learned
from bertwright.model.model import Model

POSITIONS = "encoder.embeddings.positions.table.weight"
GLOBAL_ROWS = "global_rows."


def lengthened(found: Model, model: Model) -> dict[str, Tensor]:
    """The parameters of ``found`` by name, and what follows from them for a model that has more.

    A longer table of positions repeats the shorter one; the projections of places that see
    everything start as those of all places.
    """
    weights: dict[str, Tensor] = dict(found.named_parameters())
    longer, shorter = model.recipe.encoder.positions, found.recipe.encoder.positions
    if isinstance(longer, Learned) and isinstance(shorter, Learned):
        weights[POSITIONS] = _repeated(weights[POSITIONS], shorter, longer)
    for name, _ in model.named_parameters():
        if GLOBAL_ROWS in name and name not in weights:
            of_all = weights.get(name.replace(GLOBAL_ROWS, ""))
            if of_all is not None:
                weights[name] = of_all
    return weights


def _repeated(table: Tensor, shorter: Learned, longer: Learned) -> Tensor:
    """The rows of positions again and again; those before the first position as they are."""
    if longer.size <= shorter.size or longer.offset != shorter.offset:
        return table
    before, rows = table[: shorter.offset], table[shorter.offset :]
    times = -(-longer.size // len(rows))
    return torch.cat((before, rows.repeat(times, 1)[: longer.size]))
