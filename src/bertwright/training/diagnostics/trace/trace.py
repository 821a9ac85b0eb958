"""Trace one sequence: its tokens, masks, targets and a model's predictions."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertwright.batches.batch import Batch
from bertwright.batches.formats import Mixture
from bertwright.batches.token_info import RELATIONS, SequenceBatch
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.model import DeviceBatch, Model
from bertwright.modules.attention.mask import Visibility
from bertwright.objectives.model_output import GeneratorInput, ModelOutput
from bertwright.objectives.objective import Objective, combined_visibility
from bertwright.recipes import Recipe
from bertwright.training.clock import Progress
from bertwright.training.pretraining_batches import PretrainingBatches


@dataclass(frozen=True)
class TracedPrediction:
    """One of the top predictions of a model."""

    label: str
    probability: float


@dataclass(frozen=True)
class TracedTarget:
    """A target at a position.

    ``probability`` belongs to the correct label; None without a model.
    """

    objective: str
    label: str
    extra_inputs: Mapping[str, int | str]
    predictions: tuple[TracedPrediction, ...] = ()
    probability: float | None = None


@dataclass(frozen=True)
class TracedToken:
    """A position of a sequence.

    ``token`` is the original token, None for a query position behind the text; ``input_token`` is
    the masked input, ``replacement`` the token of a generator, if it differs.
    """

    position: int
    token: str | None
    input_token: str
    is_masked: bool
    is_special: bool
    token_info: Mapping[str, int]
    targets: tuple[TracedTarget, ...]
    replacement: str | None = None

    @property
    def is_padding(self) -> bool:
        """Return whether the position is padding without targets."""
        return self.token_info.get("document_ids") == -1 and not self.targets

    @property
    def is_text(self) -> bool:
        """Return whether the position holds a token of the text."""
        return self.token is not None and not self.is_padding


@dataclass(frozen=True)
class SequenceTrace:
    """The trace of a sequence; ``relation`` is None unless it is a text pair."""

    recipe: str
    phase: int
    sequence: int
    epoch: int
    objectives: tuple[str, ...]
    relation: str | None
    tokens: tuple[TracedToken, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the trace as a dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class TracedOutputs:
    """The input ids (B, L) of the encoder, and the logits (M, C) by objective."""

    input_ids: Tensor
    logits: Mapping[str, Tensor]


def trace_sequence(
    recipe: Recipe,
    data: Dataset,
    phase: int,
    sequence: int = 0,
    epoch: int = 0,
    model: Model | None = None,
    top_k: int = 3,
    objective_group: int = 0,
) -> SequenceTrace:
    """Trace a sequence of a phase as in the middle of the phase, with one objective group.

    Errors: UserError if there is no such phase or sequence.
    """
    require_phase(recipe, phase)
    batches = PretrainingBatches(recipe, data)
    objectives = recipe.objective_schedule(phase)[objective_group].objectives
    num_sequences = batches.epoch_size(phase, objectives)
    if sequence >= num_sequences:
        raise UserError(
            f"there is no sequence {sequence}: the text has {num_sequences}, counted from 0"
        )
    index, epochs = np.array([sequence]), np.array([epoch])
    originals = batches.unmasked_sequences(phase, objectives, index, epochs)
    batch = batches.make_batch(Progress(0, 0.5, phase, 0.5, 0, 0.5), objectives, index, epochs)
    outputs = None if model is None else predict_targets(model, batch, objectives)
    targets = {
        name: _targets_by_position(name, objective, batch, data.tokenizer, outputs, top_k)
        for name, objective in objectives.items()
        if objective.capabilities.is_classification
    }
    relation = None if originals.relation is None else RELATIONS[int(originals.relation[0])]
    tokens = _traced_tokens(originals, batch, data.tokenizer, targets, outputs)
    return SequenceTrace(recipe.name, phase, sequence, epoch, tuple(objectives), relation, tokens)


def require_phase(recipe: Recipe, phase: int) -> None:
    """Raise UserError if a recipe has no such phase."""
    if phase >= len(recipe.phases):
        raise UserError(
            f"there is no phase {phase}: {recipe.name} has {len(recipe.phases)}, counted from 0"
        )


@torch.no_grad()
def predict_targets(
    model: Model, batch: Batch, objectives: Mapping[str, Objective]
) -> TracedOutputs:
    """Predict the targets of a batch, except for objectives without a head in the model."""
    device_batch = DeviceBatch(batch, model.embedding_table.device)
    input_ids, token_info = device_batch.token_ids, device_batch.token_info
    objective_list = list(objectives.values())
    visibility: Visibility = model.encoder.visibility & combined_visibility(objective_list)
    heads = dict(model.heads.items())
    predictable = {
        n: o
        for n, o in objectives.items()
        if o.capabilities.is_classification and _can_predict(model, n, o)
    }
    logits = dict[str, Tensor | None]()
    for name, objective in predictable.items():
        if objective.capabilities.is_generator:
            generator_input = GeneratorInput(input_ids, token_info, visibility, None, 0)
            targets, head = device_batch.targets[name], heads.get(name)
            logits[name] = objective.generator_logits(targets, generator_input, head)
            input_ids, _ = objective.replace_tokens(targets, generator_input, head)
    output = ModelOutput(
        input_ids,
        model.encoder(input_ids, token_info, visibility),
        model.embedding_table,
        model.output,
        token_info=token_info,
        decoder=model.decoder,
    )
    for name, objective in predictable.items():
        if not objective.capabilities.is_generator:
            logits[name] = objective.logits(device_batch.targets[name], output, heads.get(name))
    return TracedOutputs(
        input_ids, {n: values for n, values in logits.items() if values is not None}
    )


def _can_predict(model: Model, name: str, objective: Objective) -> bool:
    if objective.capabilities.predicts_tokens:
        return model.output is not None
    return type(model.recipe.objectives.get(name)) is type(objective)


def _targets_by_position(
    name: str,
    objective: Objective,
    batch: Batch,
    tokenizer: Tokenizer,
    outputs: TracedOutputs | None,
    top_k: int,
) -> dict[int, list[TracedTarget]]:
    """Return the weighted targets of one objective, by position."""
    targets, token_name = batch.targets[name], tokenizer.id_to_token
    logits = None if outputs is None else outputs.logits.get(name)
    by_position: dict[int, list[TracedTarget]] = {}
    for index in np.flatnonzero(targets.weights > 0):
        position, label = int(targets.positions[index]), int(targets.labels[index])
        values = {key: int(column[index]) for key, column in targets.extra_inputs.items()}
        extra_inputs = objective.describe_extra_inputs(values, token_name)
        traced = TracedTarget(name, objective.target_label(label, token_name), extra_inputs)
        if outputs is not None and logits is not None:
            probabilities = logits[index].double().softmax(-1)
            input_id = outputs.input_ids.flatten()[position : position + 1]
            correct = int(objective.true_labels(torch.tensor([label]).to(input_id), input_id))
            num_possible = int((logits[index] > -torch.inf).sum())
            top = probabilities.topk(min(top_k, num_possible))
            predictions = tuple(
                TracedPrediction(objective.class_label(int(class_id), token_name), float(value))
                for value, class_id in zip(top.values, top.indices, strict=True)
            )
            traced = TracedTarget(
                name,
                objective.class_label(correct, token_name),
                extra_inputs,
                predictions,
                float(probabilities[correct]),
            )
        by_position.setdefault(position, []).append(traced)
    return by_position


def _traced_tokens(
    originals: SequenceBatch,
    batch: Batch,
    tokenizer: Tokenizer,
    targets: Mapping[str, Mapping[int, list[TracedTarget]]],
    outputs: TracedOutputs | None,
) -> tuple[TracedToken, ...]:
    length, token_name = originals.token_ids.shape[1], tokenizer.id_to_token
    input_ids: list[int] = batch.token_ids[0].tolist()
    replaced_ids: list[int] = input_ids if outputs is None else outputs.input_ids[0].tolist()
    info = {name: values[0] for name, values in batch.token_info.arrays().items()}
    info = {"position_ids": np.arange(len(input_ids)), **info}
    tokens: list[TracedToken] = []
    for position, (input_id, replaced_id) in enumerate(zip(input_ids, replaced_ids, strict=True)):
        original = int(originals.token_ids[0, position]) if position < length else None
        tokens.append(
            TracedToken(
                position,
                None if original is None else token_name(original),
                token_name(input_id),
                is_masked=original is not None and original != input_id,
                is_special=position < length and bool(originals.is_special[0, position]),
                token_info={name: int(values[position]) for name, values in info.items()},
                targets=tuple(t for by_pos in targets.values() for t in by_pos.get(position, ())),
                replacement=token_name(replaced_id) if replaced_id != input_id else None,
            )
        )
    return tuple(tokens)


def distinct_phases(recipe: Recipe) -> list[int]:
    """Return the phases whose input format or objectives differ from all earlier ones."""
    first: dict[str, int] = {}
    for phase in range(len(recipe.phases)):
        objectives = {name: o.model_dump_json() for name, o in recipe.objectives_of(phase).items()}
        first.setdefault(f"{recipe.input_format_of(phase).model_dump_json()} {objectives}", phase)
    return list(first.values())


def limit_to_data(recipe: Recipe, data: Dataset) -> Recipe:
    """Return the recipe with a length that the text can fill and without unusable mixture parts."""
    train = data.split("train")
    num_special = 0 if recipe.assembly.is_sequential else 2
    longest = max(8, train.num_tokens + num_special)
    assembly = recipe.assembly.model_copy(update={"length": min(longest, recipe.assembly.length)})
    missing = {"translations", "dialogues"}
    if len(train.translations):
        missing.remove("translations")
    if train.turns is not None:
        missing.remove("dialogues")
    if isinstance(assembly, Mixture) and missing & assembly.data_requirements:
        parts = {
            n: part for n, part in assembly.parts.items() if not missing & part.data_requirements
        }
        assembly = assembly.model_copy(update={"parts": parts, "weights": {}})
    phases = tuple(
        phase
        if phase.length is None
        else phase.model_copy(update={"length": min(longest, phase.length)})
        for phase in recipe.phases
    )
    return recipe.model_copy(update={"assembly": assembly, "phases": phases})
