"""What objectives declare about themselves is what they do."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from bertwright.batches.noising.noising import Noising
from bertwright.batches.targets import Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.core.rng import CounterRng
from bertwright.models.model import Model
from bertwright.objectives.model_output import ModelOutput
from bertwright.objectives.objective import MaskingContext, Objective
from bertwright.recipes import Recipe
from bertwright.testing.toy import TOY_VOCAB_SIZE, toy_sequences, toy_vocabulary
from toy_recipes import SYSTEMS, toy, toy_batch

Case = tuple[Recipe, Objective, str, SequenceBatch, SequenceBatch, Targets]
"""A recipe with an objective and its name, its sequences before and after, and its targets."""

KINDS = sorted(
    kind
    for axis in (Objective, Noising)
    for kind, one in axis.kinds().items()
    if one.__module__.startswith("bertwright.") and kind != "denoising"
)
"""Objectives; denoising counts as its noisings."""


def kind_of(objective: Objective) -> str:
    noising = objective.decoder_noising
    return objective.kind_name() if noising is None else noising.kind_name()


@pytest.fixture(scope="module")
def examples() -> dict[str, Case]:
    """Return every kind of objective in a recipe.

    Objectives that are listed before it have changed the sequences.
    """
    cases: dict[str, Case] = {}
    for system in SYSTEMS:
        recipe = toy(system)
        turns = [
            (phase, turn, group)
            for phase in range(len(recipe.phases))
            for turn, group in enumerate(recipe.objective_schedule(phase))
        ]
        for phase, turn, group in turns:
            batch = toy_sequences(recipe, phase, turn)
            index = np.arange(len(batch.token_ids))
            rng = CounterRng(recipe.seed, np.zeros_like(index), index)
            earlier: dict[str, Targets] = {}
            for name, objective in group.objectives.items():
                context = MaskingContext(rng, toy_vocabulary(), earlier_targets=dict(earlier))
                changed, targets = objective.make_targets(batch, context)
                cases.setdefault(
                    kind_of(objective), (recipe, objective, name, batch, changed, targets)
                )
                batch, earlier[name] = changed, targets
    return cases


def test_every_kind_is_in_a_recipe(examples: dict[str, Case]) -> None:
    assert sorted(examples) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_input_changes_as_declared(kind: str, examples: dict[str, Case]) -> None:
    _, objective, _, before, after, targets = examples[kind]
    declared, length = objective.capabilities, before.token_ids.shape[1]
    moves_tokens = objective.permutes_input
    changes = declared.masks_input or declared.corrupts_input or moves_tokens
    same = after.token_ids.shape == before.token_ids.shape and bool(
        (after.token_ids == before.token_ids).all()
    )
    assert same == (not changes)
    if (declared.predicts_tokens or declared.is_generator) and not moves_tokens:
        assert declared.masks_input == (not same)
    if declared.uses_decoder:  # the encoder reads another text, with its end elsewhere if it moves
        assert moves_tokens == (not np.array_equal(after.is_special, before.is_special))
        return
    if after.token_ids.shape[1] != length:
        return  # there are queries behind the text
    changed = np.flatnonzero(after.token_ids != before.token_ids)
    predicted = targets.positions[targets.weights > 0]
    only_targets_change = set(changed.tolist()) <= set(predicted.tolist())
    assert only_targets_change == (not moves_tokens)
    kept = np.sort(after.token_ids, axis=1) == np.sort(before.token_ids, axis=1)
    if declared.corrupts_input:  # the same tokens in another order
        assert kept.all()
    elif declared.masks_input:
        assert not kept.all()


@pytest.mark.parametrize("kind", KINDS)
def test_annotations_of_sequences_are_kept(kind: str, examples: dict[str, Case]) -> None:
    _, _, _, before, after, _ = examples[kind]
    np.testing.assert_array_equal(after.relation, before.relation)
    assert after.is_special.shape == after.token_ids.shape
    assert after.is_special.dtype == np.bool_
    if after.token_info.is_query_stream is not None:
        assert after.is_special[after.token_info.is_query_stream].all()


@pytest.mark.parametrize("kind", KINDS)
def test_stated_numbers_of_targets_are_those_of_sequences(
    kind: str, examples: dict[str, Case]
) -> None:
    _, objective, _, before, _, targets = examples[kind]
    declared, length = objective.capabilities, before.token_ids.shape[1]
    assert (objective.num_decoder_positions(length) > 0) == declared.uses_decoder
    if not declared.predicts_tokens and not declared.uses_decoder:
        if objective.mask_selection is None:
            assert objective.targets_per_token(length) == 0
        return
    stated = objective.targets_per_token(length) * np.count_nonzero(before.is_real)
    # A short sequence rounds the number up.
    most = 1.6 * stated + 2 * len(before.token_ids)
    assert 0.4 * stated <= np.count_nonzero(targets.weights) <= most


def test_a_masking_rate_that_changes_counts_by_its_middle() -> None:
    rate = {"kind": "linear", "from": 0.5, "to": 0.1}
    selection = {"kind": "tokens", "masking_rate": rate}
    masked = Objective.parse({"kind": "masked", "selection": selection})
    assert masked.targets_per_token(100) == pytest.approx(0.3)


def test_a_language_of_the_decoder_is_named_if_there_is_one() -> None:
    denoising = toy("bart").objectives["denoising"]
    for language, named in ((0, {}), (1, {"decoder_language_ids": 1})):
        inputs = {"decoder_language_ids": language, "decoder_input_ids": 7}
        described = denoising.describe_extra_inputs(inputs, lambda token: f"token {token}")
        assert described == {**named, "decoder_input_ids": "token 7"}


HAS_A_HEAD_WITHOUT_CLASSES = {"skip-gram"}
"""It tells words near a word from noise: its labels are these words, its head their vectors."""


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_the_declared_classes(kind: str, examples: dict[str, Case]) -> None:
    _, objective, _, _, _, targets = examples[kind]
    declared = objective.capabilities
    labels = targets.labels[targets.weights > 0]
    assert len(labels)
    assert labels.min() >= 0
    if not declared.is_classification:
        assert objective.kind in HAS_A_HEAD_WITHOUT_CLASSES or not labels.any()
        assert not declared.class_labels
        assert not declared.predicts_tokens
        return
    num_classes = objective.num_classes(TOY_VOCAB_SIZE)
    assert labels.max() < (TOY_VOCAB_SIZE if declared.detects_replacements else num_classes)
    if not declared.is_generator:
        names = [objective.class_label(n, str) for n in range(num_classes)]
        assert len(set(names)) == num_classes
    uses_vocabulary = declared.predicts_tokens or objective.class_labels is None
    assert uses_vocabulary == (num_classes == TOY_VOCAB_SIZE)
    assert declared.uses_embedding_table == (uses_vocabulary and not declared.predicts_tokens)
    if declared.predicts_tokens:
        assert objective.class_label(3, lambda token: f"token {token}") == "token 3"


@pytest.mark.parametrize("kind", KINDS)
def test_heads_are_built_for_what_is_not_predicted_by_the_lm_head(
    kind: str, examples: dict[str, Case]
) -> None:
    recipe, objective, name, _, _, _ = examples[kind]
    model = Model.build(recipe, TOY_VOCAB_SIZE)
    declared = objective.capabilities
    has_head = name in model.heads
    needs_head = declared.is_classification and not declared.predicts_tokens
    needs_head |= objective.kind in HAS_A_HEAD_WITHOUT_CLASSES
    assert has_head == needs_head
    assert (model.output is not None) >= declared.predicts_tokens


def turn_of(recipe: Recipe, name: str) -> tuple[int, int, Mapping[str, Objective]]:
    """Return the phase and turn in which an objective is trained, and all that are trained then."""
    return next(
        (phase, turn, group.objectives)
        for phase in range(len(recipe.phases))
        for turn, group in enumerate(recipe.objective_schedule(phase))
        if name in group.objectives
    )


HAS_TOKEN_HEAD = {"skip-gram", "neighbouring-sentences", "span-boundary"}
"""Objectives with a head that predicts tokens, besides the LM head."""


@pytest.mark.parametrize("kind", KINDS)
def test_only_heads_that_predict_tokens_have_flops(kind: str, examples: dict[str, Case]) -> None:
    recipe, objective, name, before, _, _ = examples[kind]
    _, _, group = turn_of(recipe, name)
    flops = objective.head_flops(recipe.encoder, TOY_VOCAB_SIZE, before.token_ids.shape[1], group)
    assert flops >= 0
    assert (flops > 0) == (objective.kind in HAS_TOKEN_HEAD)


@pytest.mark.parametrize("kind", KINDS)
def test_query_positions_are_appended_as_stated(kind: str, examples: dict[str, Case]) -> None:
    _, objective, _, before, after, targets = examples[kind]
    is_query_stream = after.token_info.is_query_stream
    assert (objective.query_stream_fraction > 0) == (is_query_stream is not None)
    if is_query_stream is not None:
        stated = objective.query_stream_fraction * np.count_nonzero(before.is_real)
        assert np.count_nonzero(targets.weights) == pytest.approx(stated, rel=0.6)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_classifications_have_logits(kind: str, examples: dict[str, Case]) -> None:
    recipe, objective, name, _, _, _ = examples[kind]
    phase, turn, _ = turn_of(recipe, name)
    model = Model.build(recipe, TOY_VOCAB_SIZE)
    batch = toy_batch(recipe, phase, turn=turn)
    targets = batch.targets[name]
    states = model.encoder(batch.token_ids, batch.token_info, objective.visibility)
    output = ModelOutput(
        batch.token_ids,
        states,
        model.embedding_table,
        model.output,
        token_info=batch.token_info,
        decoder=model.decoder,
    )
    logits = objective.logits(targets, output, dict(model.heads.items()).get(name))
    declared = objective.capabilities
    # A generator runs before the encoder, and has logits that are not of its states.
    if declared.is_generator or not declared.is_classification:
        assert logits is None
        return
    assert logits is not None
    num_classes = 2 if declared.detects_replacements else objective.num_classes(TOY_VOCAB_SIZE)
    assert logits.shape == (len(targets.labels), num_classes)
