"""The contract of an objective."""

import copy
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from bertwright.batches.batch import Batch
from bertwright.batches.targets import Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.core.rng import CounterRng
from bertwright.models.model import DeviceBatch, Model
from bertwright.objectives.model_output import Loss
from bertwright.objectives.objective import MaskingContext, Objective
from bertwright.recipes import Recipe
from bertwright.testing.laws import TOLERANCE, failing_with, require
from bertwright.testing.toy import (
    NUM_SEQUENCES,
    TOY_VOCAB_SIZE,
    randomise,
    toy_arrays,
    toy_recipe,
    toy_sequences,
    toy_tokenizer,
    toy_vocabulary,
)
from bertwright.training.diagnostics.doctor.batch_samples import SampledBatches
from bertwright.training.diagnostics.doctor.isolation import check_isolation
from bertwright.training.diagnostics.doctor.target_checks import check_targets

NUM_UPDATES, LEARNING_RATE = 30, 5e-3


def check_objective(
    objective: Objective | str, *overrides: str, recipe: str | Path = "bert"
) -> None:
    """Check the requirements of an objective, alone in a recipe of toy size.

    It is unchanged after writing and reading a recipe. Its targets depend on the seed and the
    sequence, not on the batch; its input is not modified; and the number of targets is the same in
    every epoch. ``doctor`` finds no error in the targets. Labels are classes. The loss is finite,
    ignores padding (if the input format has any), has a gradient for every parameter of the head,
    and decreases on one batch. An objective that needs another one is checked in its recipe with
    ``check_recipe``.

    ``objective`` may be its kind. ``recipe`` determines the encoder and the input format, changed
    by ``overrides``. Errors: AssertionError with one sentence.
    """
    kind = objective if isinstance(objective, str) else objective.kind_name()
    with failing_with(f"objective {kind}"):
        parsed = Objective.parse(objective)
        toy = _recipe_of(parsed, recipe, overrides)
        stored = Recipe.model_validate(yaml.safe_load(toy.as_yaml()))
        require(stored == toy, f"objective {kind} changes when its recipe is stored and read")
        _check_targets(toy, kind)
        _check_by_doctor(toy, kind)
        _check_labels(toy, kind)
        model = Model.build(toy, TOY_VOCAB_SIZE)
        randomise(model, 0.1)
        _check_loss(model, kind)
        _check_padding(model, kind)
        _check_gradients(model, kind)
        _check_learning(Model.build(toy, TOY_VOCAB_SIZE), kind)


def _recipe_of(objective: Objective, name: str | Path, overrides: tuple[str, ...]) -> Recipe:
    others = dict.fromkeys(Recipe.load(name).objectives)
    settings = objective.model_dump(mode="json", by_alias=True)
    return toy_recipe(
        name,
        "phases=[{}]",
        {"objectives": {**others, objective.kind_name(): settings}},
        "encoder.dropout=0",
        "encoder.initialisation={kind: width-aware}",
        *overrides,
    )


def _check_targets(recipe: Recipe, kind: str) -> None:
    """Check that targets are a pure function of the seed, the epoch and the sequence."""
    first, again = toy_arrays(recipe, 0), toy_arrays(recipe, 0)
    half = toy_arrays(recipe, 0, num_sequences=NUM_SEQUENCES // 2)
    (objective,) = recipe.objectives.values()
    random = f"objective {kind}: make_targets draws random numbers other than from its rng"
    require(_equal_batches(first, again), random)
    shared = f"objective {kind}: the input or the targets of a sequence depend on its batch"
    require(np.array_equal(first.token_ids[: len(half.token_ids)], half.token_ids), shared)
    if not objective.capabilities.uses_decoder:
        limit = half.token_ids.size
        for ours, theirs in zip(
            _active(first.targets[kind], limit), _active(half.targets[kind], limit), strict=True
        ):
            require(np.array_equal(ours, theirs), shared)
    sizes = {len(toy_arrays(recipe, 0, epoch).targets[kind].positions) for epoch in range(4)}
    require(
        len(sizes) == 1,
        f"objective {kind}: the number of targets changes from epoch to epoch, {sorted(sizes)}, so "
        f"that a compiled step would be compiled again: pad them with weight 0",
    )
    sequences, numbers = toy_sequences(recipe), np.arange(NUM_SEQUENCES)
    before = copy.deepcopy(_arrays_of(sequences))
    rng = CounterRng(recipe.seed, np.zeros_like(numbers), numbers)
    objective.make_targets(sequences, MaskingContext(rng, toy_vocabulary()))
    for name, array in _arrays_of(sequences).items():
        require(
            np.array_equal(array, before[name]),
            f"objective {kind}: make_targets changes {name} of its input: change a copy",
        )


def _check_by_doctor(recipe: Recipe, kind: str) -> None:
    """Check masks, labels, and which positions influence each other, as ``doctor`` does."""
    objectives, batches = recipe.objectives, [toy_arrays(recipe, 0, epoch) for epoch in range(2)]
    samples = SampledBatches(0, toy_sequences(recipe), *batches)
    diagnostics = check_targets(samples, objectives, toy_tokenizer())
    diagnostics += check_isolation(samples, recipe, [*objectives.values()], TOY_VOCAB_SIZE)
    for diagnostic in diagnostics:
        require(diagnostic.severity != "error", f"objective {kind}: {diagnostic.message}")


def _check_labels(recipe: Recipe, kind: str) -> None:
    (objective,) = recipe.objectives.values()
    batch = toy_arrays(recipe, 0)
    targets = batch.targets[kind]
    require(
        bool(np.isfinite(targets.weights).all() and (targets.weights >= 0).all()),
        f"objective {kind}: the weights of its targets are not finite and at least 0",
    )
    if objective.capabilities.is_classification:
        num_classes = objective.num_classes(TOY_VOCAB_SIZE)
        labels = torch.from_numpy(targets.labels)
        if not objective.capabilities.uses_decoder:
            input_ids = torch.from_numpy(batch.token_ids.ravel()[targets.positions])
            labels = objective.true_labels(labels, input_ids.long())
        labels = labels[torch.from_numpy(targets.weights > 0)]
        require(
            bool(((labels >= 0) & (labels < num_classes)).all()),
            f"objective {kind}: its labels lie between {labels.min()} and {labels.max()}, and it "
            f"has {num_classes} classes",
        )
        for class_id in range(num_classes):
            objective.class_label(class_id, str)


def _check_loss(model: Model, kind: str) -> None:
    batch = DeviceBatch(toy_arrays(model.recipe, 0))
    with torch.no_grad():
        loss = _loss_of(model, batch)
    require(
        math.isfinite(float(loss.sum)) and loss.sum.ndim == 0 and loss.sum.dtype == torch.float32,
        f"objective {kind}: its loss is {loss.sum}: one finite float32 number is needed",
    )
    total = batch.targets[kind].total_weight
    require(
        math.isclose(loss.count, total, rel_tol=TOLERANCE),
        f"objective {kind}: its loss counts {loss.count:g}, and its targets weigh {total:g}",
    )
    require(
        0 <= float(loss.num_correct) <= loss.count * (1 + TOLERANCE),
        f"objective {kind}: {float(loss.num_correct):g} of {loss.count:g} predictions are correct",
    )


def _check_padding(model: Model, kind: str) -> None:
    """Check that other tokens at padded positions do not change the loss."""
    batch = DeviceBatch(toy_arrays(model.recipe, 0))
    document_ids = batch.token_info.document_ids
    if document_ids is None or not (document_ids < 0).any():
        return
    changed = copy.copy(batch)
    others = (batch.token_ids + 7) % TOY_VOCAB_SIZE
    changed.token_ids = torch.where(document_ids < 0, others, batch.token_ids)
    loss, other = (float(_loss_of(model, b).sum.detach()) for b in (batch, changed))
    require(
        math.isclose(loss, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE),
        f"objective {kind}: its loss depends on padding, {loss:.6g} and {other:.6g}",
    )


def _check_gradients(model: Model, kind: str) -> None:
    model.zero_grad()
    _loss_of(model, DeviceBatch(toy_arrays(model.recipe, 0))).sum.backward()
    for name, parameter in model.heads.named_parameters():
        require(
            parameter.grad is not None and bool((parameter.grad != 0).any()),
            f"objective {kind}: the loss does not reach {name} of its head",
        )
    gradients = [p.grad for p in model.encoder.parameters() if p.grad is not None]
    require(
        any(bool((gradient != 0).any()) for gradient in gradients),
        f"objective {kind}: the loss does not reach the encoder",
    )
    require(
        all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None),
        f"objective {kind}: a gradient is not finite",
    )


def _check_learning(model: Model, kind: str) -> None:
    batch = DeviceBatch(toy_arrays(model.recipe, 0))
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    losses: list[float] = []
    for _ in range(NUM_UPDATES):
        optimiser.zero_grad()
        loss = _loss_of(model, batch)
        mean: Tensor = loss.sum / loss.count
        mean.backward()
        optimiser.step()
        losses.append(float(mean.detach()))
    require(
        losses[-1] < losses[0],
        f"objective {kind}: on one batch its loss goes from {losses[0]:.3f} to {losses[-1]:.3f} in "
        f"{NUM_UPDATES} steps",
    )


def _loss_of(model: Model, batch: DeviceBatch) -> Loss:
    (loss,) = model.losses(batch, model.recipe.objectives).values()
    return loss


def _active(targets: Targets, limit: int) -> tuple[Any, ...]:
    """Return positions, labels and weights of targets with a weight, at positions below a limit."""
    active = (targets.weights > 0) & (targets.positions < limit)
    return targets.positions[active], targets.labels[active], targets.weights[active]


def _equal_batches(batch: Batch, other: Batch) -> bool:
    pairs = [(batch.token_ids, other.token_ids)]
    for name, targets in batch.targets.items():
        others = other.targets[name]
        pairs += [
            (getattr(targets, field), getattr(others, field))
            for field in ("positions", "labels", "weights")
        ]
    return all(np.array_equal(ours, theirs) for ours, theirs in pairs)


def _arrays_of(sequences: SequenceBatch) -> Mapping[str, Any]:
    info = sequences.token_info
    arrays = {field.name: getattr(info, field.name) for field in fields(info)}
    arrays |= {"token_ids": sequences.token_ids, "is_special": sequences.is_special}
    return {name: array for name, array in arrays.items() if array is not None}
