"""Initial lists of items for re-ranking, from a first model, with the features of their items."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import Model
from bertwright.training.evaluation.next_item import (
    MAX_USERS_AT_END,
    next_item_states,
    ranking_objective,
    read_histories,
)

FirstRanking = Literal["model", "popularity"]

CUTOFFS = (1, 5, 10)


@dataclass(frozen=True)
class RankedLists:
    """The initial lists of U users, N items each, best first.

    Attributes:
        users: numbers of the users (U,).
        items: (U, N) int64 token ids.
        features: (U, N, F) float32: the vector of an item, and its personalised vector.
        clicks: (U, N) float32: 1 for the item that the user chose next, 0 for the others. A user
            whose next item is not in the list has no click.
    """

    users: Tensor
    items: Tensor
    features: Tensor
    clicks: Tensor

    def __len__(self) -> int:
        return len(self.users)

    def select(self, indices: Tensor) -> "RankedLists":
        """Return the lists with these indices."""
        parts = (self.users, self.items, self.features, self.clicks)
        return RankedLists(*(part[indices] for part in parts))

    @property
    def has_click(self) -> Tensor:
        """Which users (U,) have a click."""
        return self.clicks.sum(1) > 0


@torch.no_grad()
def build_lists(
    model: Model, data: Dataset, split: str, list_length: int, first: FirstRanking
) -> RankedLists:
    """Return the list of every user with a history in a split, whose last item is the click.

    The first ranking orders the items that are not in the earlier history: by the logits of the
    model, or by popularity in training. The personalised vector of an item is the product, element
    by element, of the model's state of the user and the item's output weights; its sum, with the
    bias of the item, is the logit.

    Errors: UserError for a model that predicts no items, or too few items.
    """
    objective = ranking_objective(model.recipe.objectives_of(len(model.recipe.phases) - 1))
    if objective is None or model.output is None or data.tokenizer.kind != "items":
        raise UserError(
            "re-ranking starts from a model that predicts items: pretrain bert4rec on data that "
            "was prepared with --item"
        )
    histories = read_histories(data.split(split), MAX_USERS_AT_END)
    users, item_lists = list(histories), list(histories.values())
    table, device = model.embedding_table, model.embedding_table.device
    weights, biases = model.output.weights_and_biases(
        torch.arange(len(table), device=device), table
    )
    popularity = torch.from_numpy(data.token_counts.astype(np.float32)).to(device)
    special = sorted(data.tokenizer.special_tokens.all)
    lists: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
    for indices, hidden_states in next_item_states(model, objective, item_lists, data):
        states = model.output.transformed_states(hidden_states)
        for index, state in zip(indices, states, strict=True):
            *earlier, target = item_lists[index]
            scores = (weights @ state + biases).float() if first == "model" else popularity.clone()
            scores[[*special, *earlier]] = -torch.inf
            num_candidates = int((scores > -torch.inf).sum())
            if num_candidates < list_length:
                raise UserError(
                    f"list_length {list_length}: user {users[index]} has only {num_candidates} "
                    f"items left to rank: choose a smaller one"
                )
            items = torch.sort(scores, descending=True, stable=True).indices[:list_length]
            features = torch.cat((weights[items], weights[items] * state), dim=1).float().cpu()
            items = items.cpu()
            lists[index] = items, features, (items == target).float()
    order = sorted(lists)
    if not order:
        raise UserError(f"the {split} split of {data.path} holds no history of two items")
    items, features, clicks = (torch.stack([lists[n][part] for n in order]) for part in range(3))
    return RankedLists(torch.tensor([users[n] for n in order]), items, features, clicks)


def list_metrics(clicks: Tensor) -> Mapping[str, float]:
    """Return the metrics of ranked lists, given the clicks (U, N), best first.

    ``hr_k`` is the fraction of users with a click among the first k, ``precision_k`` the mean
    fraction of clicks among these, ``ndcg_k`` the mean of 1 / log2(1 + rank) over clicks among
    these, ``mrr`` the mean of 1 / rank. A user without a click in the list counts as 0.
    """
    clicks, ranks = clicks.double(), torch.arange(1, clicks.shape[1] + 1)
    metrics: dict[str, float] = {}
    for k in CUTOFFS:
        metrics[f"hr_{k}"] = float((clicks[:, :k].sum(1) > 0).double().mean())
    for k in CUTOFFS[1:]:
        metrics[f"precision_{k}"] = float((clicks[:, :k].sum(1) / k).mean())
        metrics[f"ndcg_{k}"] = float((clicks / torch.log2(1.0 + ranks))[:, :k].sum(1).mean())
    metrics["mrr"] = float((clicks / ranks).amax(1).mean())
    return metrics
