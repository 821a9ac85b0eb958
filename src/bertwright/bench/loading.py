"""How long a batch takes to come: rows from the shards, what is hidden in them, tensors."""

import time
from pathlib import Path
from statistics import median

from bertwright.bench.workload import Workload
from bertwright.model.model import TensorBatch
from bertwright.text.shards import Data
from bertwright.training.clock import Place
from bertwright.training.recipe_batches import RecipeBatches

NUM_BATCHES = 30


def seconds_per_batch(workload: Workload, folder: Path, device: str) -> float:
    """The median over a few batches of a workload, drawn from a data folder one after the other."""
    recipe = workload.recipe()
    batches = RecipeBatches(recipe, Data.open(folder))
    seconds: list[float] = []
    for step in range(NUM_BATCHES):
        place = Place(step, progress=0.0, rows=step * workload.num_rows)
        began = time.perf_counter()
        for batch in batches(place).micro_batches:
            TensorBatch(batch, device)
        seconds.append(time.perf_counter() - began)
    return median(seconds)
