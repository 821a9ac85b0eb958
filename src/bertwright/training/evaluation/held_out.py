"""Metrics of a pre-trained model on held-out text, with the same masks in every run.

The masked loss always uses 15 % of the tokens, 80 % of them masked, 10 % replaced and 10 % kept,
drawn from a fixed random key; the input format is the recipe's. Two baselines need no context: the
*unigram entropy*, the mean of -ln((c + 1) / (N + V)) over the held-out targets, where c is the
count of a token among the N of the training split and V the vocabulary size; and the accuracy of
always predicting the most frequent token.
"""

import math
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.batches.batch import Batch, make_batch
from bertwright.batches.formats import InputFormat, MixedSequences, SequenceSource
from bertwright.batches.targets import Targets
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import RandomPermutation, stream_key
from bertwright.data.holdout import HELDOUT
from bertwright.data.interaction_histories import TEST
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import DeviceBatch, Model
from bertwright.objectives.model_output import Loss
from bertwright.objectives.objective import Objective
from bertwright.objectives.schedule import ObjectiveGroup, objective_schedule
from bertwright.recipes import Recipe
from bertwright.training.callbacks.callback import metric_name
from bertwright.training.callbacks.segment_memory import SegmentMemory
from bertwright.training.evaluation.masked_words import iter_masked_words
from bertwright.training.evaluation.next_item import MAX_USERS_AT_END, next_item_metrics
from bertwright.training.evaluation.retrieval import retrieval_accuracy
from bertwright.training.pretraining_batches import stretch_length, target_maker
from bertwright.training.sequence_sources import SequenceSources, open_split

SEED = 0
"""Seed of the sequences and masks of every evaluation."""

NUM_TOKENS_DURING_TRAINING, NUM_TOKENS_AT_END = 8_192, 65_536
"""Number of positions evaluated during training, and at its end."""

NUM_WORD_BYTES = 50_000
"""Bytes of text used to measure bits per byte."""

BATCH_TOKENS = 4096

EMPTY_COUNT = 1e-6
"""Count used for an objective without targets, to avoid division by zero."""


class ObjectiveTotals(NamedTuple):
    """Sums over the targets of an objective.

    ``binary_scores`` (K, 2) holds the score and the label (0 or 1) of every binary target.
    """

    loss_sum: float
    num_correct: float
    num_targets: float
    binary_scores: NDArray[np.float64]


@dataclass(frozen=True)
class HeldOutEvaluation:
    """The objectives of one phase and their batches of held-out text.

    ``batch_labels`` names the source of each batch, such as a language; empty without one.
    """

    objectives: Mapping[str, Objective]
    batches: tuple[Batch, ...]
    batch_labels: tuple[str, ...]
    baseline_metrics: Mapping[str, float]
    """Metrics of the context-free baselines of the masked objective."""
    objectives_without_targets: tuple[str, ...] = ()
    """Objectives without a target in the text, which therefore have no metrics."""

    def compute_metrics(self, model: Model, device: torch.device) -> dict[str, float]:
        """Return loss and accuracy of each objective.

        Adds perplexity and baselines of the masked objective, the ROC AUC of binary objectives and
        the loss of each batch label.
        """
        totals_by_label = {
            label: compute_totals(model, self.objectives, self._batches_with(label), device)
            for label in dict.fromkeys(self.batch_labels)
        }
        metrics: dict[str, float] = {}
        for name, objective in self.objectives.items():
            if name in self.objectives_without_targets:
                continue
            prefix = metric_name(name)
            nats, num_correct, count, scores = _sum_totals(totals_by_label.values(), name)
            metrics[f"{prefix}_loss"] = nats / count
            if objective.capabilities.prediction == "masked":
                metrics["perplexity"] = math.exp(min(nats / count, 700.0))
            metrics[f"{prefix}_accuracy"] = num_correct / count
            if (auc := _roc_auc(scores)) is not None:
                metrics[f"{prefix}_auc"] = auc
            for label, totals in totals_by_label.items():
                loss_sum, _, num_targets, _ = totals[name]
                if label and num_targets > EMPTY_COUNT:
                    metrics[f"{prefix}_loss_{metric_name(label)}"] = loss_sum / num_targets
        return {**metrics, **self.baseline_metrics}

    def _batches_with(self, label: str) -> list[Batch]:
        labelled = zip(self.batches, self.batch_labels, strict=True)
        return [batch for batch, batch_label in labelled if batch_label == label]


def _sum_totals(totals: Iterable[Mapping[str, ObjectiveTotals]], name: str) -> ObjectiveTotals:
    nats, num_correct, num_targets, scores = zip(*(t[name] for t in totals), strict=True)
    return ObjectiveTotals(sum(nats), sum(num_correct), sum(num_targets), np.concatenate(scores))


def make_held_out_evaluation(
    recipe: Recipe, phase: int, data: Dataset, num_tokens: int
) -> HeldOutEvaluation:
    """Make the evaluation of a phase on about ``num_tokens`` positions, at least one sequence.

    With separate languages every language has at least one sequence.
    Errors: UserError if the held-out split is shorter than one sequence, or has no targets.
    """
    if not recipe.objectives:
        raise UserError("the losses of the teacher, which are the only ones, need no held-out text")
    input_format = recipe.input_format_of(phase)
    objectives = {
        name: objective.for_evaluation(input_format)
        for name, objective in recipe.objectives_of(phase).items()
    }
    sources = SequenceSources(recipe, data, HELDOUT, SEED)
    vocabulary = Vocabulary.from_tokenizer(data.tokenizer, data.token_counts)
    batches: list[Batch] = []
    labels: list[str] = []
    groups = [
        compatible
        for group in objective_schedule(objectives)
        for compatible in _compatible_groups(group)
    ]
    for group in filter(None, groups):
        source = sources.get(phase, group)
        indices, index_labels = _sample_batches(source, input_format, num_tokens)
        target_makers = {name: target_maker(o, SEED, vocabulary, 1.0) for name, o in group.items()}
        batches += (
            make_batch(
                source,
                index,
                np.zeros_like(index),
                target_makers,
                continues_previous=input_format.is_sequential and number > 0,
                vocabulary=vocabulary,
            )
            for number, index in enumerate(indices)
        )
        labels += index_labels
    idle = tuple(name for name in objectives if not _has_targets(batches, name))
    if len(idle) == len(objectives):
        raise UserError(
            f"the held-out text of {data.path} has no target for objectives.{idle[0]}: prepare it "
            f"with a larger --heldout"
        )
    masked = masked_objective_name(objectives)
    baselines = {} if masked in (None, *idle) else _unigram_baselines(batches, masked, data)
    return HeldOutEvaluation(objectives, tuple(batches), tuple(labels), baselines, idle)


def _has_targets(batches: Sequence[Batch], name: str) -> bool:
    return any(batch.targets[name].weights.any() for batch in batches if name in batch.targets)


def _compatible_groups(objective_group: ObjectiveGroup) -> Iterator[Mapping[str, Objective]]:
    """Yield the objectives that can share one input, then each one that corrupts it by itself."""
    corrupting = {
        name: o for name, o in objective_group.objectives.items() if o.capabilities.corrupts_input
    }
    yield {name: o for name, o in objective_group.objectives.items() if name not in corrupting}
    yield from ({name: objective} for name, objective in corrupting.items())


def _sample_batches(
    source: SequenceSource, input_format: InputFormat, num_tokens: int
) -> tuple[list[NDArray[np.int64]], Sequence[str]]:
    """Sample about ``num_tokens`` tokens of a source, in batches with a label each."""
    num_sequences = min(source.num_sequences, max(1, num_tokens // input_format.length))
    batch_size = min(num_sequences, max(1, BATCH_TOKENS // input_format.length))
    if isinstance(source, MixedSequences):
        return _sample_each_source(source, num_sequences, batch_size)
    if input_format.is_sequential:
        step = np.arange(num_sequences // batch_size)[:, None]
        stretch = stretch_length(source.num_sequences, batch_size)
        indices = list(step + stretch * np.arange(batch_size))
    else:
        indices = _sample_sequences(source.num_sequences, num_sequences, batch_size)
    return indices, ("",) * len(indices)


def _sample_sequences(
    num_available: int, num_sequences: int, batch_size: int
) -> list[NDArray[np.int64]]:
    """Sample sequences of a source, in batches; the same ones in every run."""
    permutation = RandomPermutation(num_available, stream_key(SEED, "held-out"))
    index = permutation(np.arange(num_sequences))
    return np.split(index, range(batch_size, num_sequences, batch_size))


def _sample_each_source(
    source: MixedSequences, num_sequences: int, batch_size: int
) -> tuple[list[NDArray[np.int64]], tuple[str, ...]]:
    """Sample from every source in proportion to its size, in batches of one label each."""
    indices: list[NDArray[np.int64]] = []
    labels: list[str] = []
    for first, label, part in zip(source.bounds[:-1], source.labels, source.sources, strict=True):
        size = max(1, round(num_sequences * part.num_sequences / source.num_sequences))
        batches = _sample_sequences(part.num_sequences, min(size, part.num_sequences), batch_size)
        indices += [first + index for index in batches]
        labels += [label] * len(batches)
    return indices, tuple(labels)


def evaluate(
    model: Model, data: Dataset, recipe: Recipe | None = None, fraction: float = 1.0
) -> dict[str, float]:
    """Evaluate a trained model on held-out text, with the objectives of its last phase.

    Includes bits per byte if it predicts tokens, and retrieval if there are translations.
    ``recipe`` replaces the model's recipe; ``fraction`` is the fraction of the text to read.
    """
    device, recipe = model.embedding_table.device, recipe or model.recipe
    last = len(recipe.phases) - 1
    evaluation = make_held_out_evaluation(recipe, last, data, int(fraction * NUM_TOKENS_AT_END))
    with without_compilation():
        split = open_split(model.recipe, data, HELDOUT)
        retrieval = retrieval_accuracy(model, split, data.tokenizer.special_tokens)
    return {
        **evaluation.compute_metrics(model, device),
        **evaluate_bits_per_byte(model, recipe, data, int(fraction * NUM_WORD_BYTES)),
        **retrieval,
        **evaluate_next_items(model, recipe, last, data),
        **{f"test_{n}": v for n, v in evaluate_next_items(model, recipe, last, data, TEST).items()},
    }


def evaluate_next_items(
    model: Model,
    recipe: Recipe,
    phase: int,
    data: Dataset,
    split: str = HELDOUT,
    max_users: int = MAX_USERS_AT_END,
) -> dict[str, float]:
    """Return the ranking metrics of next items; empty if a phase reads no histories."""
    if "histories" not in recipe.input_format_of(phase).data_requirements:
        return {}
    with without_compilation():
        return next_item_metrics(model, recipe.objectives_of(phase), data, split, max_users)


def evaluate_bits_per_byte(
    model: Model, recipe: Recipe, data: Dataset, num_word_bytes: int = NUM_WORD_BYTES
) -> dict[str, float]:
    """Return ``bits_per_byte`` and ``nats_per_masked_word`` in the last phase of a recipe.

    Empty if no objective predicts tokens, or there are no words.
    """
    device, last = model.embedding_table.device, len(recipe.phases) - 1
    objectives, input_format = recipe.objectives_of(last), recipe.input_format_of(last)
    if "histories" in input_format.data_requirements:
        return {}
    split, specials = open_split(recipe, data, HELDOUT), data.tokenizer.special_tokens
    vocabulary = Vocabulary.from_tokenizer(data.tokenizer)
    opening, length = input_format.start_token(specials), input_format.length
    nats, num_bytes, num_words = 0.0, 0, 0
    for masked_words in iter_masked_words(
        split, specials, opening, length, num_word_bytes, vocabulary.reserved
    ):
        batch = masked_words.make_batch(objectives, vocabulary)
        if batch is None:
            return {}
        [name] = batch.targets
        nats += compute_totals(model, {name: objectives[name]}, [batch], device)[name].loss_sum
        num_bytes += masked_words.num_bytes
        num_words += masked_words.num_words
    if num_bytes == 0:
        return {}
    return {
        "bits_per_byte": nats / math.log(2) / num_bytes,
        "nats_per_masked_word": nats / num_words,
    }


def masked_objective_name(objectives: Mapping[str, Objective]) -> str | None:
    """Return the name of the first masked-token objective, if any."""
    return next((n for n, o in objectives.items() if o.capabilities.prediction == "masked"), None)


@torch.no_grad()
def compute_totals(
    model: Model,
    objectives: Mapping[str, Objective],
    batches: Sequence[Batch],
    device: torch.device,
) -> dict[str, ObjectiveTotals]:
    """Compute the totals of every objective over some batches."""
    sums = {name: np.zeros(3) for name in objectives}
    scores = {name: [np.empty((0, 2))] for name in objectives}
    segment_memory = SegmentMemory.for_recipe(model.recipe)
    with without_compilation():
        for batch in batches:
            device_batch = DeviceBatch(batch, device)
            with segment_memory.memory_of(device_batch) as memory:
                losses = model.losses(device_batch, objectives, memory=memory)
            for name, loss in losses.items():
                sums[name] += float(loss.sum), float(loss.num_correct), loss.count
                scores[name].append(_binary_scores(loss, batch.targets[name]))
    return {
        name: ObjectiveTotals(
            float(s[0]), float(s[1]), max(float(s[2]), EMPTY_COUNT), np.concatenate(scores[name])
        )
        for name, s in sums.items()
    }


def _roc_auc(binary_scores: NDArray[np.float64]) -> float | None:
    """Return the ROC AUC of (K, 2) scores; None with one class, NaN for non-finite scores."""
    is_positive = binary_scores[:, 1] > 0
    if is_positive.all() or not is_positive.any():
        return None
    if not np.isfinite(binary_scores[:, 0]).all():
        return math.nan
    from sklearn.metrics import roc_auc_score  # slow import, rarely needed

    return float(roc_auc_score(is_positive, binary_scores[:, 0]))


def _binary_scores(loss: Loss, targets: Targets) -> NDArray[np.float64]:
    """Return the (K, 2) scores and labels of weighted binary targets, if the loss has any."""
    if loss.binary_predictions is None:
        return np.empty((0, 2))
    columns = [column.float() for column in loss.binary_predictions]
    scores = torch.stack(columns, dim=1).cpu().double().numpy()
    return scores[targets.weights > 0]


@contextmanager
def without_compilation() -> Generator[None]:
    """Run without compiled graphs, which do not fit evaluation batches."""
    # Setting the stance would import the compiler, which takes seconds.
    is_imported = "torch._dynamo" in sys.modules
    with torch.compiler.set_stance("force_eager") if is_imported else nullcontext():
        yield


def _unigram_baselines(batches: Sequence[Batch], name: str, data: Dataset) -> dict[str, float]:
    counts = data.token_counts
    targets = [batch.targets[name] for batch in batches if name in batch.targets]
    labels = np.concatenate([t.labels[t.weights > 0] for t in targets])
    entropy = -np.log((counts[labels] + 1) / (counts.sum() + len(counts))).mean()
    most_frequent = (labels == counts.argmax()).mean()
    return {"unigram_entropy": float(entropy), "most_frequent_accuracy": float(most_frequent)}
