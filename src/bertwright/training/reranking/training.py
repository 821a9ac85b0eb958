"""Train a re-ranker on the lists of held-out items, and test it on the lists of test items.

The first model has never seen the items that were held out, so its lists are as good in training as
in use. The loss of a list is the negative log-probability of its clicks (Pei et al. 2019, equation
11); a list without a click has none. The best epoch is chosen on a tenth of the users.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from bertwright.core.config import Settings
from bertwright.core.errors import UserError
from bertwright.core.rng import RandomPermutation, stream_key
from bertwright.core.schedules import WarmupSchedule
from bertwright.data.holdout import HELDOUT
from bertwright.data.interaction_histories import TEST
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import Model
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.initialisation import FanInInitialisationConfig, initialise
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.objectives.model_output import Loss
from bertwright.optimisers.adam import AdamWConfig
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.training.clock import Progress, TrainingClock, every_n_steps
from bertwright.training.loop import EvaluationResult, TrainingJob, train
from bertwright.training.reranking.ranked_lists import (
    FirstRanking,
    RankedLists,
    build_lists,
    list_metrics,
)
from bertwright.training.reranking.reranker import ListReranker, RerankerConfig
from bertwright.training.step_batch import StepBatch

CLICK_LOSS = "clicks"
"""Name of the loss."""

VALIDATION_FRACTION = 0.1
"""Fraction of the users on which the best epoch is chosen."""


class RerankingSettings(Settings):
    """Settings of a re-ranker and its training; ``first`` is the ranking to start from."""

    list_length: int = Field(default=30, ge=2, le=10_000)
    first: FirstRanking = "model"
    width: int = Field(default=64, ge=1, le=65_536)
    depth: int = Field(default=2, ge=1, le=1_024)
    heads: int = Field(default=2, ge=1, le=1_024)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    epochs: int = Field(default=30, ge=0, le=1_000_000)
    batch_size: int = Field(default=32, ge=1, le=1 << 20)
    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    seed: int = Field(default=0, ge=0)


@dataclass(frozen=True)
class RerankingResult:
    """A re-ranker, the lists of the test items, and their metrics before and after."""

    reranker: ListReranker
    test_lists: RankedLists
    before: Mapping[str, float]
    after: Mapping[str, float]
    num_training_lists: int

    def as_dict(self) -> dict[str, Any]:
        """Return the output of ``rerank --json``."""
        return {
            "users": len(self.test_lists),
            "training_lists": self.num_training_lists,
            "in_list": float(self.test_lists.has_click.double().mean()),
            "before": dict(self.before),
            "after": dict(self.after),
        }


def train_reranker(
    model: Model,
    data: Dataset,
    settings: RerankingSettings,
) -> RerankingResult:
    """Train a re-ranker for the lists of a model.

    Errors: UserError if no list holds the item that the user chose.
    """
    lists = build_lists(model, data, HELDOUT, settings.list_length, settings.first)
    config = RerankerConfig(
        num_features=lists.features.shape[-1],
        **settings.model_dump(include={"list_length", "width", "depth", "heads", "dropout"}),
    )
    reranker = ListReranker(config)
    initialise(reranker, FanInInitialisationConfig(), settings.seed)
    training, validation = _split(lists, settings.seed)
    training = training.select(training.has_click.nonzero()[:, 0])
    if not len(training):
        raise UserError(
            f"no list of {settings.list_length} items holds the item that its user chose: raise "
            f"list_length, or train the first model for longer"
        )
    if settings.epochs:
        _train(reranker, training, validation, settings)
    test_lists = build_lists(model, data, TEST, settings.list_length, settings.first)
    after = list_metrics(rerank(reranker, test_lists).clicks)
    before = list_metrics(test_lists.clicks)
    return RerankingResult(reranker, test_lists, before, after, len(training))


@torch.inference_mode()
def rerank(reranker: ListReranker, lists: RankedLists) -> RankedLists:
    """Return the lists in the order of a re-ranker.

    Errors: UserError for lists of another length or other features.
    """
    shape = (reranker.config.list_length, reranker.config.num_features)
    if tuple(lists.features.shape[1:]) != shape:
        raise UserError(
            f"the re-ranker orders lists of {shape[0]} items with {shape[1]} features, not of "
            f"{lists.features.shape[1]} with {lists.features.shape[2]}: use the first model that "
            f"it was trained for"
        )
    order = torch.sort(scores_of(reranker, lists), dim=1, descending=True, stable=True).indices
    rows = torch.arange(len(lists))[:, None]
    return RankedLists(
        lists.users,
        lists.items[rows, order],
        lists.features[rows, order],
        lists.clicks[rows, order],
    )


@torch.inference_mode()
def scores_of(reranker: ListReranker, lists: RankedLists) -> Tensor:
    """Return the scores (U, N) of the items of lists."""
    reranker.eval()
    return torch.cat([reranker(part) for part in lists.features.split(256)])


def iter_rankings(lists: RankedLists, data: Dataset) -> Iterator[dict[str, Any]]:
    """Yield the user number and the items of each list, as in ``rankings.jsonl``."""
    for user, items in zip(lists.users.tolist(), lists.items.tolist(), strict=True):
        yield {"user": user, "items": [data.tokenizer.id_to_token(item) for item in items]}


def _split(lists: RankedLists, seed: int) -> tuple[RankedLists, RankedLists]:
    """Return the lists of the users to train on, and of those to choose the best epoch on."""
    permutation = RandomPermutation(len(lists), stream_key(seed, "reranking", "validation"))
    order = torch.from_numpy(permutation(np.arange(len(lists))))
    size = round(VALIDATION_FRACTION * len(lists))
    return lists.select(order[size:]), lists.select(order[:size])


def _train(
    reranker: ListReranker,
    training: RankedLists,
    validation: RankedLists,
    settings: RerankingSettings,
) -> None:
    """Train a re-ranker in place; it ends with the parameters of the best epoch."""
    steps_per_epoch = -(-len(training) // settings.batch_size)
    best_score, best_state = -1.0, copy.deepcopy(reranker.state_dict())

    def get_batch(progress: Progress) -> StepBatch[RankedLists]:
        epoch, step = divmod(progress.step, steps_per_epoch)
        permutation = RandomPermutation(
            len(training), stream_key(settings.seed, "reranking", "order", epoch)
        )
        first = step * settings.batch_size
        index = np.arange(first, min(first + settings.batch_size, len(training)))
        batch = training.select(torch.from_numpy(permutation(index)))
        return StepBatch(
            [batch], {CLICK_LOSS: float(batch.clicks.sum())}, len(batch), batch.items.numel()
        )

    def compute_losses(batch: RankedLists, progress: Progress) -> dict[str, Loss]:
        rng = DropoutRng.for_step(settings.seed, progress.step)
        return {CLICK_LOSS: click_loss(reranker(batch.features, rng), batch.clicks)}

    def evaluate(progress: Progress) -> EvaluationResult:
        nonlocal best_score, best_state
        score = list_metrics(rerank(reranker, validation).clicks)["mrr"] if len(validation) else 0.0
        if score > best_score:
            best_score, best_state = score, copy.deepcopy(reranker.state_dict())
        return EvaluationResult(-score, {"mrr": score})

    parameters = MasterParameters(reranker, get_parameter_roles(reranker), "float32")
    adamw = AdamWConfig(learning_rate=settings.learning_rate, weight_decay=settings.weight_decay)
    train(
        TrainingJob(
            parameters=parameters,
            optimiser=adamw.build(parameters),
            get_batch=get_batch,
            compute_losses=compute_losses,
            clock=TrainingClock(settings.epochs * steps_per_epoch),
            learning_rate_factor=WarmupSchedule(warmup=0.1).at,
            evaluate=evaluate,
            evaluation_trigger=every_n_steps(steps_per_epoch),
            remedy="lower learning_rate, and start again",
        )
    )
    parameters.release()
    reranker.load_state_dict(best_state)


def click_loss(scores: Tensor, clicks: Tensor) -> Loss:
    """Return -sum y log p over the clicked items of lists; scores and clicks are (B, N)."""
    loss = -(clicks * scores.log_softmax(dim=1)).sum()
    is_clicked = clicks.gather(1, scores.argmax(1, keepdim=True)).sum()
    return Loss(loss, float(clicks.sum()), is_clicked)
