"""Histories made to order, in which an item is known by those on both sides of it.

Items come in sets of four, as parts of a series. A user has two tastes and goes through sets of
them, one after the other, each in an order that means nothing: what stands before an item says as
much of it as what stands behind. In between stand items that everybody takes, by their popularity.
"""

import csv
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.randomness import generator, key
from bertwright.studies.corpora.corpus import Corpus, Written
from bertwright.text.histories import prepare_histories
from bertwright.text.tokenizers import TokenizerChoice

TASTES, SETS_OF_A_TASTE, SET = 10, 15, 4
POPULAR = 40
"""Items that are of no set."""

SETS_OF_A_USER = (4, 13)
SHARE_OF_POPULAR = 0.2


class Items(Corpus):
    """The histories of so many users."""

    kind: Literal["items"] = "items"
    users: int = Field(default=3_000, ge=20)
    seed: int = 0

    def write(self, to: Written) -> None:
        to.text.mkdir(parents=True)
        with open(to.text / "events.csv", "w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(("user", "item", "time"))
            for user in range(self.users):
                history = _history(generator(key(self.seed, "items"), user))
                table.writerows((f"u{user}", item, time) for time, item in enumerate(history))

    def prepare(
        self, written: Written, tokenizer: TokenizerChoice, vocabulary: Path, data: Path
    ) -> None:
        prepare_histories(written.text / "events.csv", data)


def _history(draw: np.random.Generator) -> list[str]:
    """The items of a user, in order."""
    weights = 1.0 / np.arange(1, POPULAR + 1)
    tastes = draw.choice(TASTES, 2, replace=False)
    sets = [(int(taste), n) for taste in tastes for n in range(SETS_OF_A_TASTE)]
    chosen = draw.permutation(len(sets))[: int(draw.integers(*SETS_OF_A_USER))]
    history: list[str] = []
    for taste, number in (sets[n] for n in chosen.tolist()):
        for part in draw.permutation(SET).tolist():
            if draw.random() < SHARE_OF_POPULAR:
                popular = int(draw.choice(POPULAR, p=weights / weights.sum()))
                history.append(f"all-{popular}")
            history.append(f"taste-{taste}-set-{number}-part-{part}")
    return history
