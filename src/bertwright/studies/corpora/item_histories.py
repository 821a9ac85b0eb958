"""Synthetic interaction histories in which an item is predictable from both sides.

Items belong to sets of four, like parts of a series. A user has two tastes and goes through sets of
these tastes, each set in random order: the preceding items predict an item as well as the following
ones. Popular items are interspersed in proportion to their popularity.
"""

import csv
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.core.rng import generator, stream_key
from bertwright.data.interaction_histories import prepare_histories
from bertwright.data.tokenization.tokenizer import TokenizerConfig
from bertwright.studies.corpora.corpus import Corpus, CorpusFolder

TASTES, SETS_OF_A_TASTE, SET = 10, 15, 4
POPULAR = 40
"""Number of items outside all sets."""

SETS_OF_A_USER = (4, 13)
POPULAR_FRACTION = 0.2


class ItemHistoryCorpus(Corpus):
    """A corpus of interaction histories of ``users`` users."""

    kind: Literal["items"] = "items"
    users: int = Field(default=3_000, ge=20)
    seed: int = 0

    def write(self, corpus_folder: CorpusFolder) -> None:
        corpus_folder.text.mkdir(parents=True)
        with open(corpus_folder.text / "events.csv", "w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(("user", "item", "time"))
            for user in range(self.users):
                history = _history(generator(stream_key(self.seed, "items"), user))
                table.writerows((f"u{user}", item, time) for time, item in enumerate(history))

    def prepare(
        self,
        corpus_folder: CorpusFolder,
        tokenizer: TokenizerConfig,
        tokenizer_folder: Path,
        data: Path,
    ) -> None:
        prepare_histories(corpus_folder.text / "events.csv", data)


def _history(rng: np.random.Generator) -> list[str]:
    """Return the items of one user, in order."""
    weights = 1.0 / np.arange(1, POPULAR + 1)
    tastes = rng.choice(TASTES, 2, replace=False)
    sets = [(int(taste), n) for taste in tastes for n in range(SETS_OF_A_TASTE)]
    order = rng.permutation(len(sets))[: int(rng.integers(*SETS_OF_A_USER))]
    history: list[str] = []
    for taste, number in (sets[n] for n in order.tolist()):
        for part in rng.permutation(SET).tolist():
            if rng.random() < POPULAR_FRACTION:
                popular = int(rng.choice(POPULAR, p=weights / weights.sum()))
                history.append(f"all-{popular}")
            history.append(f"taste-{taste}-set-{number}-part-{part}")
    return history
