"""Batches and first losses of every system are those recorded."""

from collections.abc import Iterator
from dataclasses import fields
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from bertwright.batches.batch import Batch
from bertwright.models import Model
from bertwright.models.model import DeviceBatch
from bertwright.testing.toy import randomise, toy_arrays
from recorded_values import RecordedValues, recorded_values
from toy_recipes import SYSTEMS, VOCABULARY, sparse, toy


@pytest.fixture(scope="module")
def batches(request: pytest.FixtureRequest) -> Iterator[RecordedValues]:
    with recorded_values("batches", request.config) as values:
        yield values


@pytest.fixture(scope="module")
def losses(request: pytest.FixtureRequest) -> Iterator[RecordedValues]:
    with recorded_values("losses", request.config) as values:
        yield values


def digest(value: Any) -> str:
    """Return a short hash of an array, independent of the size of its integers."""
    array = np.asarray(value)
    wide = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
    return sha256(repr(wide.shape).encode() + wide.tobytes()).hexdigest()[:8]


def digests(batch: Batch) -> dict[str, str]:
    """Return the hash of every array of a batch."""
    arrays: dict[str, Any] = {"token_ids": batch.token_ids, "num_tokens": batch.num_tokens}
    arrays |= batch.token_info.arrays()
    for name, targets in batch.targets.items():
        for field in fields(targets):
            value = getattr(targets, field.name)
            parts = value if field.name == "extra_inputs" else {"": value}
            arrays |= {
                f"{name}.{field.name}{'.' * bool(key)}{key}": part
                for key, part in parts.items()
                if part is not None
            }
    return {name: digest(value) for name, value in arrays.items()}


def turns(system: str) -> list[tuple[int, int]]:
    """Return every phase with the turns of its schedule."""
    recipe = toy(system, *sparse(system))
    return [
        (phase, turn)
        for phase in range(len(recipe.phases))
        for turn in range(len(recipe.objective_schedule(phase)))
    ]


@pytest.mark.parametrize("system", SYSTEMS)
def test_batches(system: str, batches: RecordedValues) -> None:
    recipe = toy(system, *sparse(system))
    values = {
        f"{phase}.{turn}.{epoch}.{name}": hash
        for phase, turn in turns(system)
        for epoch in (0, 3)
        for name, hash in digests(toy_arrays(recipe, phase, epoch, turn)).items()
    }
    batches.compare(system, values)


@pytest.mark.parametrize("system", SYSTEMS)
def test_losses(system: str, losses: RecordedValues) -> None:
    recipe = toy(system, *sparse(system))
    model = Model.build(recipe, VOCABULARY)
    randomise(model)
    values: dict[str, float] = {}
    for phase, turn in turns(system):
        objectives = recipe.objective_schedule(phase)[turn].objectives
        batch = DeviceBatch(toy_arrays(recipe, phase, turn=turn), "cpu")
        for name, loss in model.losses(batch, objectives).items():
            values[f"{phase}.{turn}.{name}.loss"] = float(loss.sum.detach())
            values[f"{phase}.{turn}.{name}.count"] = float(loss.count)
            values[f"{phase}.{turn}.{name}.correct"] = float(loss.num_correct)
    losses.compare(system, values, relative=1e-4, absolute=1e-5)
