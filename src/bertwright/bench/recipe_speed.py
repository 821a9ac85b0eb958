"""Tokens per second of every recipe in training, against plain masked language modelling.

The two stand side by side in processes of their own and take turns.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bertwright.axes import did_you_mean
from bertwright.bench.recipe_steps import BATCH_TOKENS, PLAIN, recipe_of
from bertwright.bench.turns import Contestant
from bertwright.errors import UserError
from bertwright.objectives import Permutation
from bertwright.recipes.loading import systems
from bertwright.text.shards import Data
from bertwright.training.compilation.payoff import operations_per_token
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.run_folder import fitted

TURN_SECONDS = 1.0
"""Of steps, about, before it is the other one's turn."""

COLUMNS = {
    "system": "recipe",
    "tokens_per_second": "tokens/s",
    "share": "share of the plain one's",
    "operations": "its necessary work, times the plain one's",
    "remark": "remark",
}
"""What a document shows, by key."""

Say = Callable[[str], None]

TextOf = Callable[[str], tuple[Path, str]]
"""Of a system: the data folder that it reads, and which text that is, where it is not one's own."""


def compare(
    wanted: Sequence[str], size: str, text_of: TextOf, rounds: int, compiled: bool, say: Say
) -> list[dict[str, Any]]:
    """One row of figures per system; one that its data cannot train says why.

    Every system is held against the plain one on the same data. Errors: UserError for a system that
    is not there.
    """
    for system in wanted:
        if system not in systems():
            raise UserError(f"there is no system {system!r}{did_you_mean(system, systems())}")
    texts = {system: text_of(system) for system in wanted or systems()}
    rows: dict[str, dict[str, Any]] = {}
    for text in dict.fromkeys(texts.values()):
        data, name = text
        with _contestant(PLAIN, size, data, compiled) as peer:
            peer.seconds_per_step(1)
            for system in (system for system, own in texts.items() if own == text):
                remarks = [*_more_than_plain(system, size, data), *([name] if name else [])]
                try:
                    row = _compare(system, peer, size, data, rounds, compiled)
                except UserError as error:
                    rows[system] = {"system": system, "remark": str(error)}
                    say(f"{system}: {error}")
                    continue
                except RuntimeError:
                    if not compiled:
                        raise
                    row = _compare(system, peer, size, data, rounds, compiled=False)
                    remarks.append("not compiled: compiled it does not run")
                rows[system] = row | {"remark": ", ".join(remarks)}
                say(f"{system}: {row['tokens_per_second']:,.0f} tokens/s, {row['share']:.2f}")
    return [rows[system] for system in texts]


def _compare(
    system: str, peer: Contestant, size: str, data: Path, rounds: int, compiled: bool
) -> dict[str, Any]:
    opened = Data.open(data)
    operations = _operations(system, size, opened) / _operations(PLAIN, size, opened)
    own: list[float] = []
    plain: list[float] = []
    with _contestant(system, size, data, compiled) as contestant:
        contestant.seconds_per_step(1)
        steps = max(1, round(TURN_SECONDS / contestant.seconds_per_step(2)))
        others = max(1, round(TURN_SECONDS / peer.seconds_per_step(2)))
        for _ in range(rounds):
            own.append(contestant.seconds_per_step(steps))
            plain.append(peer.seconds_per_step(others))
    return {
        "system": system,
        "tokens_per_second": BATCH_TOKENS / median(own),
        "share": median(b / a for a, b in zip(own, plain, strict=True)),
        "operations": operations,
        "rounds": rounds,
    }


def _more_than_plain(system: str, size: str, data: Path) -> Iterator[str]:
    """What a step of a system does that plain masked language modelling does not."""
    recipe = recipe_of(system, size, Data.open(data).manifest.tokenizer.kind)
    asked = recipe.objectives_of(0).values()
    if recipe.decoder is not None:
        yield "encoder and decoder"
    if recipe.encoder.mixer.recurrent:
        yield "place after place"
    if recipe.encoder.residual.is_reversible:
        yield "blocks computed again on the way back"
    if any(objective.rewrites for objective in asked):
        yield "a generator"
    if any(isinstance(objective, Permutation) for objective in asked):
        yield "two streams"


def _contestant(system: str, size: str, data: Path, compiled: bool) -> Contestant:
    settings = {"system": system, "size": size, "data": str(data), "compiled": compiled}
    return Contestant("bertwright.bench.recipe_steps", settings, os.environ)


def _operations(system: str, size: str, data: Data) -> float:
    recipe = fitted(recipe_of(system, size, data.manifest.tokenizer.kind), data)
    RecipeBatches(recipe, data).plan()  # says what the data lack
    return operations_per_token(recipe, data.tokenizer.size)[0]
