"""Held-out metrics and bits per byte."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from bertwright.batches.formats import Contiguous
from bertwright.batches.masking import SelectedPositions, TokenSelection
from bertwright.batches.targets import Targets
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.rng import CounterRng
from bertwright.core.schedules import ConstantSchedule
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.boundaries import WORD_START
from bertwright.models.model import DeviceBatch, Model
from bertwright.modules.token_tensors import TokenInfo
from bertwright.objectives.causal import CausalLM
from bertwright.objectives.masked import MaskedLM
from bertwright.objectives.objective import MaskingContext, Objective
from bertwright.objectives.permutation import PermutationLM
from bertwright.training.evaluation.held_out import (
    evaluate,
    evaluate_bits_per_byte,
    make_held_out_evaluation,
)
from bertwright.training.evaluation.masked_words import MaskedWords, iter_masked_words
from small_recipe import small

CPU = torch.device("cpu")


def uniform_model(data: Dataset, *changes: str) -> Model:
    """Return a model that predicts all tokens with equal probability."""
    model = Model.build(small("modern", *changes), data.tokenizer.vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


def test_the_loss_of_a_uniform_model_is_the_log_of_the_vocabulary_size(data: Dataset) -> None:
    metrics = evaluate(uniform_model(data), data)
    size = data.tokenizer.vocab_size
    assert metrics["masked_loss"] == pytest.approx(math.log(size), rel=1e-5)
    assert metrics["perplexity"] == pytest.approx(size, rel=1e-4)
    assert set(metrics) == {
        "masked_loss",
        "perplexity",
        "masked_accuracy",
        "unigram_entropy",
        "most_frequent_accuracy",
        "bits_per_byte",
        "nats_per_masked_word",
    }


def test_the_loss_of_a_frequency_model_is_the_unigram_entropy(data: Dataset) -> None:
    model = uniform_model(data)
    counts = data.token_counts
    with torch.no_grad():
        probabilities = torch.from_numpy((counts + 1) / (counts.sum() + len(counts)))
        model.output.bias.copy_(probabilities.log())
    metrics = evaluate(model, data)
    assert metrics["masked_loss"] == pytest.approx(metrics["unigram_entropy"], rel=1e-4)
    assert metrics["masked_accuracy"] == pytest.approx(metrics["most_frequent_accuracy"])
    assert 0 < metrics["most_frequent_accuracy"] < 0.5
    assert metrics["unigram_entropy"] < math.log(data.tokenizer.vocab_size)


def test_objectives_do_not_read_text_shuffled_by_another(data: Dataset) -> None:
    changes = ("encoder.positions.size=64", "phases=[{}]")
    both = Model.build(small("structbert", *changes), data.tokenizer.vocab_size)
    others = {n: o for n, o in both.recipe.objectives.items() if n != "word-order"}
    unshuffled = both.recipe.model_copy(update={"objectives": others})
    metrics, expected = evaluate(both, data), evaluate(both, data, recipe=unshuffled)
    assert {name: metrics[name] for name in expected} == expected
    assert set(metrics) - set(expected) == {"word_order_loss", "word_order_accuracy"}


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_accuracy_and_auc_of_a_model_that_detects_no_replaced_token(
    data: Dataset, scale: float
) -> None:
    recipe = small("electra", "phases=[{}]", "encoder.positions.size=64")
    model = Model.build(recipe, data.tokenizer.vocab_size)
    head = model.heads["replaced-token"]
    with torch.no_grad():
        head.logit.weight.mul_(scale)
        head.logit.bias.fill_(-100.0)
    evaluation = make_held_out_evaluation(recipe, 0, data, 1000)
    metrics = evaluation.compute_metrics(model, CPU)
    assert metrics["replaced_token_accuracy"] > 0.8
    if scale == 0.0:
        assert metrics["replaced_token_auc"] == 0.5
        return
    scores, labels = [], []
    for batch in evaluation.batches:
        with torch.no_grad():
            loss = model.losses(DeviceBatch(batch), evaluation.objectives)["replaced-token"]
        counts = batch.targets["replaced-token"].weights > 0
        scores += loss.binary_predictions[0].numpy()[counts].tolist()
        labels += loss.binary_predictions[1].numpy()[counts].tolist()
    assert metrics["replaced_token_auc"] == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_evaluation_masks_do_not_depend_on_seed_and_masking_rate(data: Dataset) -> None:
    plain = make_held_out_evaluation(small(), 2, data, 1000)
    other = make_held_out_evaluation(
        small("modern", "seed=7", "objectives.masked.selection.masking_rate=0.5"), 2, data, 1000
    )
    for a, b in zip(plain.batches, other.batches, strict=True):
        np.testing.assert_array_equal(a.token_ids, b.token_ids)
        np.testing.assert_array_equal(a.targets["masked"].positions, b.targets["masked"].positions)
    num_targets = sum(float(b.targets["masked"].weights.sum()) for b in plain.batches)
    assert num_targets / sum(b.num_tokens for b in plain.batches) == pytest.approx(0.15, abs=0.02)


def test_a_causal_phase_is_evaluated_with_its_objective(data: Dataset) -> None:
    metrics = make_held_out_evaluation(small(), 0, data, 500).compute_metrics(
        uniform_model(data), CPU
    )
    assert set(metrics) == {"causal_loss", "causal_accuracy"}


def test_the_number_of_tokens_limits_the_sequences(data: Dataset) -> None:
    evaluation = make_held_out_evaluation(small(), 2, data, 320)
    assert sum(b.token_ids.size for b in evaluation.batches) == 320


def masked_rounds(data: Dataset, max_bytes: int = 10**6, length: int = 32) -> list[MaskedWords]:
    specials = data.tokenizer.special_tokens
    return list(
        iter_masked_words(data.split("heldout"), specials, specials.start, length, max_bytes)
    )


def vocabulary_of(data: Dataset) -> Vocabulary:
    return Vocabulary(data.tokenizer.vocab_size, data.tokenizer.special_tokens)


def mask_targets(masked: MaskedWords, data: Dataset) -> Targets:
    """Return the targets of a masked language model, after checking its input."""
    batch = masked.make_batch({"masked": MaskedLM()}, vocabulary_of(data))
    assert batch is not None
    targets = batch.targets["masked"]
    positions = targets.positions[targets.weights > 0]
    is_mask = batch.token_ids == data.tokenizer.special_tokens.mask
    np.testing.assert_array_equal(is_mask, masked.is_masked)
    assert is_mask.ravel()[positions].all()
    return targets


def first_rounds(data: Dataset) -> list[MaskedWords]:
    """Return the first rounds, in which whole words are masked."""
    return [masked for masked in masked_rounds(data) if masked.num_words > 0]


def masked_texts(data: Dataset) -> list[str]:
    """Return the text of the masked tokens of each first round."""
    return [
        data.tokenizer.decode(masked.sequences.token_ids[masked.is_masked].tolist())
        for masked in first_rounds(data)
    ]


def test_every_masked_token_is_predicted_once_and_in_order(data: Dataset) -> None:
    num_masked = sum(int(masked.is_masked.sum()) for masked in first_rounds(data))
    rounds = masked_rounds(data)
    assert sum(float(masked.selection.weights.sum()) for masked in rounds) == num_masked
    for masked in rounds:
        is_target = np.zeros_like(masked.is_masked)
        row, slot = np.nonzero(masked.selection.weights)
        is_target[row, masked.selection.positions[row, slot]] = True
        assert masked.is_masked[is_target].all()
        if masked.num_words == 0:
            # Later rounds see the earlier tokens of each word.
            assert not np.roll(masked.is_masked, 1, axis=1)[is_target].any()
        else:
            assert is_target.sum() == masked.num_words


def test_a_word_costs_the_sum_of_its_tokens_in_order(byte_data: Dataset) -> None:
    model = Model.build(small(), byte_data.tokenizer.vocab_size)
    nats, num_bytes = 0.0, 0
    for masked in masked_rounds(byte_data):
        token_ids = torch.from_numpy(masked.sequences.token_ids).long()
        document_ids = torch.from_numpy(masked.sequences.token_info.document_ids).long()
        mask_id = byte_data.tokenizer.special_tokens.mask
        input_ids = token_ids.masked_fill(torch.from_numpy(masked.is_masked), mask_id)
        position_ids = torch.arange(token_ids.shape[1])[None]
        states = model(input_ids, TokenInfo(position_ids, document_ids=document_ids))
        log_probs = model.logits(states).log_softmax(-1).gather(-1, token_ids[..., None])[..., 0]
        row, slot = np.nonzero(masked.selection.weights)
        nats -= float(log_probs[row, masked.selection.positions[row, slot]].detach().sum())
        num_bytes += masked.num_bytes
    metrics = evaluate_bits_per_byte(model, model.recipe, byte_data)
    assert metrics["bits_per_byte"] == pytest.approx(nats / math.log(2) / num_bytes, rel=1e-4)


def test_the_same_words_are_masked_for_every_tokenizer(data: Dataset, byte_data: Dataset) -> None:
    texts = ["".join("".join(masked_texts(d)).lower().split()) for d in (data, byte_data)]
    assert texts[0] == texts[1]
    assert len(texts[0]) > 200


def test_bytes_are_counted_over_masked_words(data: Dataset, byte_data: Dataset) -> None:
    sums = []
    for dataset in (data, byte_data):
        rounds = masked_rounds(dataset)
        sums.append((sum(m.num_bytes for m in rounds), sum(m.num_words for m in rounds)))
    assert sums[0] == sums[1]
    words = " ".join(masked_texts(data)).split()
    assert sums[0] == (sum(len(w) for w in words), len(words))


def test_the_expected_fraction_of_words_is_masked(data: Dataset) -> None:
    split = data.split("heldout")
    total = int(split.word_bytes(0, split.num_tokens).sum())
    for max_bytes in (total // 2, total):
        num_bytes = sum(masked.num_bytes for masked in masked_rounds(data, max_bytes))
        assert num_bytes == pytest.approx(0.15 * max_bytes, rel=0.25)


def test_sequences_hold_every_token_of_the_documents_once(data: Dataset) -> None:
    split = data.split("heldout")
    rounds = [masked for masked in masked_rounds(data, length=16) if masked.num_words > 0]
    assert sum((~masked.sequences.is_special).sum() for masked in rounds) == split.num_tokens
    assert split.boundaries(0, 1)[0] & WORD_START


def test_bits_per_byte_of_a_uniform_model(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # evaluate all held-out text
    rounds = masked_rounds(data)
    num_tokens = sum(m.selection.weights.sum() for m in rounds)
    metrics = evaluate(uniform_model(data), data)
    expected = num_tokens * math.log2(data.tokenizer.vocab_size) / sum(m.num_bytes for m in rounds)
    assert metrics["bits_per_byte"] == pytest.approx(expected, rel=1e-4)


def test_shifted_predictions_do_not_cross_sequences(data: Dataset) -> None:
    """Contiguous sequences have no special tokens, so their first position may be masked."""
    source = Contiguous(length=16).plan(data.split("train"), data.tokenizer.special_tokens, 0)
    index = np.arange(min(source.num_sequences, 32))
    sequences = source.sequences(index, 0)
    vocabulary = Vocabulary(data.tokenizer.vocab_size, data.tokenizer.special_tokens)
    context = MaskingContext(CounterRng(0, 0, index), vocabulary, 0.0, {})
    for shift in (0, 1):
        objective = MaskedLM(
            shift=shift, selection=TokenSelection(masking_rate=ConstantSchedule(value=0.5))
        )
        _, targets = objective.make_targets(sequences, context)
        positions = targets.positions[targets.weights > 0]
        assert bool((positions % 16 == 0).any()) == (shift == 0)


@pytest.mark.parametrize(
    "objective",
    [MaskedLM(), MaskedLM(shift=1), CausalLM(), CausalLM(direction="both"), PermutationLM()],
)
def test_every_objective_predicts_the_same_tokens(data: Dataset, objective: Objective) -> None:
    for masked in masked_rounds(data):
        batch = masked.make_batch({"objective": objective}, vocabulary_of(data))
        assert batch is not None
        targets, expected = batch.targets["objective"], mask_targets(masked, data)
        np.testing.assert_array_equal(targets.weights, expected.weights)
        counts = targets.weights > 0
        np.testing.assert_array_equal(targets.labels[counts], expected.labels[counts])


@pytest.mark.parametrize("system", ["modern", "gpt-2", "gpt-bert", "xlnet"])
def test_a_predicted_token_is_not_visible(data: Dataset, system: str) -> None:
    recipe = small(system)
    model = Model.build(recipe, data.tokenizer.vocab_size)
    objectives = recipe.objectives_of(len(recipe.phases) - 1)
    masked = masked_rounds(data)[0]
    selection = masked.selection
    # A causal model sees earlier tokens, so only the first target of a sequence is independent.
    first = SelectedPositions(
        selection.positions[:, :1], selection.weights[:, :1], selection.unit_ids[:, :1]
    )
    original = replace(masked, selection=first)
    token_ids = masked.sequences.token_ids.copy()
    token_ids[masked.is_masked] = data.tokenizer.encode("z")[0]
    changed = replace(original, sequences=replace(masked.sequences, token_ids=token_ids))
    batch, changed_batch = (
        m.make_batch(objectives, vocabulary_of(data)) for m in (original, changed)
    )
    assert batch is not None
    assert changed_batch is not None
    [name] = batch.targets
    changed_batch.targets[name] = batch.targets[name]
    loss, changed_loss = (
        model.losses(DeviceBatch(b), {name: objectives[name]})[name].sum
        for b in (batch, changed_batch)
    )
    assert float(loss.detach()) == float(changed_loss.detach())


def test_a_backward_model_has_no_bits_per_byte(data: Dataset) -> None:
    backward = {"causal": CausalLM(direction="backward")}
    assert masked_rounds(data)[0].make_batch(backward, vocabulary_of(data)) is None
