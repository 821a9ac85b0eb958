"""Which item comes next? Where the last item of held-out histories stands among all others.

As in Sun et al. (2019, section 4.3) the last item of a history is ranked by what a model says that
has read those before it: among all items that are not in the history (*full*), and among it and
100 others that the paper draws by their popularity (*sampled*). Sampled figures are higher, and do
not keep the order of systems (Krichene and Rendle 2020). Beside both stands what popularity alone
reaches. ``hr_k`` is the share of users whose item is among the first k, ``ndcg_k`` the mean of
1 / log2(1 + rank) where it is, ``mrr`` that of 1 / rank; among equals an item has the mean rank.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.model.model import Model
from bertwright.model.reading import read_batches
from bertwright.objectives.causal import Causal
from bertwright.objectives.masked import Masked
from bertwright.objectives.objective import Objective, visibility_of
from bertwright.randomness import Permutation, key, uniform
from bertwright.text.shards import Data, Split

USERS_DURING, USERS_AT_END = 500, 10_000
"""Histories that are looked at, at most: during training, and afterwards."""

NEGATIVES = 100
FIRST = (1, 5, 10)

KEY = key(0, "ranking")
"""The same in every run, so that every model ranks among the same items."""


def ranking(
    model: Model,
    objectives: Mapping[str, Objective],
    data: Data,
    split: str = "heldout",
    most_users: int = USERS_AT_END,
) -> dict[str, float]:
    """``hr_10``, ``ndcg_10``, ``mrr`` and the like; ``sampled_`` and ``popularity_`` before them.

    Nothing where no objective names items, or the split has no history of two.
    """
    asked = next((o for o in objectives.values() if isinstance(o, Masked | Causal)), None)
    histories = _histories(data.split(split), most_users)
    if asked is None or not histories:
        return {}
    popularity = torch.from_numpy(data.piece_counts.astype(np.float32))
    special = torch.tensor(sorted(data.tokenizer.specials.all))
    names = ("", "sampled_", "popularity_", "popularity_sampled_")
    ranks: dict[str, list[float]] = {name: [] for name in names}
    users, read = list(histories), list(histories.values())
    for number, logits in _scores(model, asked, read, data):
        user, items = users[number], read[number]
        target = items[-1]
        others = torch.ones(len(popularity), dtype=torch.bool)
        others[special] = False
        others[torch.tensor(items)] = False
        candidates = others.nonzero()[:, 0]
        drawn = _drawn(candidates, popularity, user)
        for name, scores in (("", logits), ("popularity_", popularity)):
            ranks[name].append(_rank(scores, target, candidates))
            ranks[f"{name}sampled_"].append(_rank(scores, target, drawn))
    return {
        f"{name}{figure}": value
        for name, own in ranks.items()
        for figure, value in _figures(np.array(own)).items()
    }


def _histories(split: Split, most: int) -> dict[int, list[int]]:
    """Some of the histories of at least two items, by the number of the user."""
    order = Permutation(max(split.num_documents, 1), KEY)(np.arange(split.num_documents))
    found: dict[int, list[int]] = {}
    for user in order.tolist():
        start, stop = (int(place) for place in split.document_starts[user : user + 2])
        if stop - start > 1:
            found[user] = split.pieces(start, stop).tolist()
        if len(found) == most:
            break
    return found


@torch.inference_mode()
def _scores(
    model: Model, asked: Objective, histories: Sequence[list[int]], data: Data
) -> Iterator[tuple[int, Tensor]]:
    """What a model says (V,) to come last, for each history by its number."""
    specials, length = data.tokenizer.specials, model.recipe.assembly.length
    behind = [specials.mask] if isinstance(asked, Masked) else []
    shift = asked.shift if isinstance(asked, Masked) else 0
    rows = [[*items[:-1], *behind][-length:] for items in histories]
    rule = model.encoder.rule & visibility_of([asked])
    device = model.embedding.device
    for batch in read_batches(rows, specials.pad, device):
        states = model.encoder(batch.pieces, batch.coordinates, rule)
        last = (torch.tensor(batch.lengths, device=device) - 1 - shift).clamp(min=0)
        logits = model.logits(states[torch.arange(len(last), device=device), last]).float().cpu()
        yield from zip(batch.numbers.tolist(), logits, strict=True)


def _drawn(candidates: Tensor, popularity: Tensor, user: int) -> Tensor:
    """The candidates that a user's item is ranked among: drawn without replacement by how often
    each was met (Efraimidis and Spirakis 2006); all where they are few."""
    if len(candidates) <= NEGATIVES:
        return candidates
    at: NDArray[np.int64] = candidates.numpy()
    waited = -np.log1p(-uniform(KEY, user, at)) / np.maximum(popularity.numpy()[at], 1e-6)
    return candidates[torch.from_numpy(np.argpartition(waited, NEGATIVES)[:NEGATIVES])]


def _rank(scores: Tensor, target: int, candidates: Tensor) -> float:
    """The rank of the target among the candidates, from 1."""
    others, own = scores[candidates], scores[target]
    return 1.0 + float((others > own).sum()) + 0.5 * float((others == own).sum())


def _figures(rank: NDArray[np.float64]) -> dict[str, float]:
    gain = 1.0 / np.log2(1.0 + rank)
    figures = {f"hr_{k}": float((rank <= k).mean()) for k in FIRST}
    figures |= {f"ndcg_{k}": float(np.where(rank <= k, gain, 0.0).mean()) for k in FIRST[1:]}
    return {**figures, "mrr": float((1.0 / rank).mean())}
