"""Next-item ranking: the rank of the last item of held-out histories; ties get the mean rank.

As in Sun et al. (2019, section 4.3) the model reads the earlier items and ranks the last one among
all items that are not in the history, and among 100 negatives sampled by popularity (*sampled*).
Sampled metrics are higher and do not preserve the order of systems (Krichene and Rendle 2020).
Ranking by popularity is the baseline. ``hr_k`` is the fraction of users whose item is among the
first k, ``ndcg_k`` the mean of 1 / log2(1 + rank) over these, ``mrr`` the mean of 1 / rank.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.core.rng import RandomPermutation, stream_key, uniform
from bertwright.data.shards.dataset import Dataset, Split
from bertwright.models.model import Model
from bertwright.models.text_batches import text_batches
from bertwright.objectives.objective import Objective, combined_visibility

MAX_USERS_DURING_TRAINING, MAX_USERS_AT_END = 500, 10_000
"""Maximum number of histories during training, and at its end."""

NUM_NEGATIVES = 100
CUTOFFS = (1, 5, 10)

RANDOM_KEY = stream_key(0, "ranking")
"""Fixed, so that every model ranks the same items."""


def next_item_metrics(
    model: Model,
    objectives: Mapping[str, Objective],
    data: Dataset,
    split: str = "heldout",
    max_users: int = MAX_USERS_AT_END,
) -> dict[str, float]:
    """Return ``hr_10``, ``ndcg_10``, ``mrr`` ..., also prefixed ``sampled_`` and ``popularity_``.

    Empty if no objective predicts items, or no history has two items.
    """
    objective = ranking_objective(objectives)
    histories = read_histories(data.split(split), max_users)
    if objective is None or not histories:
        return {}
    popularity = torch.from_numpy(data.token_counts.astype(np.float32))
    special = torch.tensor(sorted(data.tokenizer.special_tokens.all))
    names = ("", "sampled_", "popularity_", "popularity_sampled_")
    ranks: dict[str, list[float]] = {name: [] for name in names}
    users, item_lists = list(histories), list(histories.values())
    for index, logits in _next_item_scores(model, objective, item_lists, data):
        user, items = users[index], item_lists[index]
        target = items[-1]
        is_candidate = torch.ones(len(popularity), dtype=torch.bool)
        is_candidate[special] = False
        is_candidate[torch.tensor(items)] = False
        candidates = is_candidate.nonzero()[:, 0]
        negatives = _sample_negatives(candidates, popularity, user)
        for name, scores in (("", logits), ("popularity_", popularity)):
            ranks[name].append(_rank(scores, target, candidates))
            ranks[f"{name}sampled_"].append(_rank(scores, target, negatives))
    return {
        f"{prefix}{name}": value
        for prefix, prefix_ranks in ranks.items()
        for name, value in _rank_metrics(np.array(prefix_ranks)).items()
    }


def ranking_objective(objectives: Mapping[str, Objective]) -> Objective | None:
    """Return the first objective that predicts items; None if there is none."""
    ranking = (o for o in objectives.values() if o.capabilities.prediction in ("masked", "causal"))
    return next(ranking, None)


def read_histories(split: Split, max_users: int) -> dict[int, list[int]]:
    """Return up to ``max_users`` histories of at least two items, by user number."""
    order = RandomPermutation(max(split.num_documents, 1), RANDOM_KEY)(
        np.arange(split.num_documents)
    )
    histories: dict[int, list[int]] = {}
    for user in order.tolist():
        start, stop = (int(bound) for bound in split.document_starts[user : user + 2])
        if stop - start > 1:
            histories[user] = split.token_ids(start, stop).tolist()
        if len(histories) == max_users:
            break
    return histories


@torch.inference_mode()
def _next_item_scores(
    model: Model, objective: Objective, histories: Sequence[list[int]], data: Dataset
) -> Iterator[tuple[int, Tensor]]:
    """Yield the index of each history and the logits (V,) of its last item."""
    for indices, states in next_item_states(model, objective, histories, data):
        yield from zip(indices, model.logits(states).float().cpu(), strict=True)


@torch.inference_mode()
def next_item_states(
    model: Model, objective: Objective, histories: Sequence[list[int]], data: Dataset
) -> Iterator[tuple[list[int], Tensor]]:
    """Yield indices of histories (B,), and the hidden states (B, D) that predict the last items."""
    specials, length = data.tokenizer.special_tokens, model.recipe.assembly.length
    suffix = [specials.mask] if objective.capabilities.prediction == "masked" else []
    shift = objective.prediction_shift
    sequences = [[*items[:-1], *suffix][-length:] for items in histories]
    visibility = model.encoder.visibility & combined_visibility([objective])
    device = model.embedding_table.device
    for batch in text_batches(sequences, specials.pad, device):
        states = model.encoder(batch.token_ids, batch.token_info, visibility)
        last = (torch.tensor(batch.lengths, device=device) - 1 - shift).clamp(min=0)
        yield batch.indices.tolist(), states[torch.arange(len(last), device=device), last]


def _sample_negatives(candidates: Tensor, popularity: Tensor, user: int) -> Tensor:
    """Sample negatives by popularity without replacement (Efraimidis and Spirakis 2006)."""
    if len(candidates) <= NUM_NEGATIVES:
        return candidates
    ids: NDArray[np.int64] = candidates.numpy()
    keys = -np.log1p(-uniform(RANDOM_KEY, user, ids)) / np.maximum(popularity.numpy()[ids], 1e-6)
    return candidates[torch.from_numpy(np.argpartition(keys, NUM_NEGATIVES)[:NUM_NEGATIVES])]


def _rank(scores: Tensor, target: int, candidates: Tensor) -> float:
    """Return the rank of the target among the candidates, from 1; ties count half."""
    others, score = scores[candidates], scores[target]
    return 1.0 + float((others > score).sum()) + 0.5 * float((others == score).sum())


def _rank_metrics(ranks: NDArray[np.float64]) -> dict[str, float]:
    gain = 1.0 / np.log2(1.0 + ranks)
    metrics = {f"hr_{k}": float((ranks <= k).mean()) for k in CUTOFFS}
    metrics |= {f"ndcg_{k}": float(np.where(ranks <= k, gain, 0.0).mean()) for k in CUTOFFS[1:]}
    return {**metrics, "mrr": float((1.0 / ranks).mean())}
