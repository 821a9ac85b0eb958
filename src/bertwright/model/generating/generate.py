"""Which way a model generates, by what it was asked in training."""

from collections.abc import Callable, Sequence
from typing import Any

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.model.generating.continuing import Continuation, Growing, continued
from bertwright.model.generating.decoding import Decoding
from bertwright.model.generating.filling import filled
from bertwright.model.generating.rows import AskingRows, CachedRows, GrowingRows, Pieces, WholeRows
from bertwright.model.likelihood import reading_rule
from bertwright.model.model import Model
from bertwright.objectives.causal import Causal
from bertwright.objectives.masked import Masked
from bertwright.objectives.objective import Objective
from bertwright.objectives.permutation import Permutation
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Tokenizer

Way = Callable[[Model, Tokenizer, list[Growing], Decoding, Any], list[Continuation]]


def generate(
    model: Model,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    decoding: Decoding,
    num_samples: int = 1,
    by: str | None = None,
) -> list[Continuation]:
    """``num_samples`` continuations of every prompt, one prompt after the other.

    ``by`` names the question of the recipe that is asked, where it has several.
    """
    objective = speaking(model.recipe, by)
    way = next(way for kind, way in WAYS.items() if isinstance(objective, kind))
    if decoding.sweeps > 1 and not isinstance(objective, Masked):
        raise UserError("generate: sweeps are of masked models: what others added stays as it is")
    opening = model.recipe.assembly.opening(tokenizer.specials)
    texts = [
        Growing(prompt, [opening, *tokenizer.encode(prompt)], sample)
        for prompt in prompts
        for sample in range(num_samples)
    ]
    _require_room(texts, model.encoder.longest)
    return way(model, tokenizer, texts, decoding, objective)


def speaking(recipe: Recipe, by: str | None = None) -> Objective:
    """The question by which a model generates: the one that is named, or of those of the last phase
    that can, then of those of the phases before it, the one that is the first in ``WAYS``.

    Errors: UserError where there is none.
    """
    if by is not None and by not in recipe.objectives:
        raise UserError(
            f"{recipe.name} asks no question {by!r}{did_you_mean(by, recipe.objectives)}"
        )
    phases = range(len(recipe.phases)) if recipe.objectives else ()
    asked = [recipe.objectives_of(phase) for phase in reversed(phases)]
    for questions in asked if by is None else [{by: recipe.objectives[by]}]:
        for kind in WAYS:
            for objective in questions.values():
                if isinstance(objective, kind):
                    return objective
    asks = ", ".join([by] if by else recipe.objectives) or "nothing"
    raise UserError(
        f"{recipe.name} cannot generate: it asks {asks}, and a text is made by asking for pieces "
        f"({', '.join(kind.model_fields['kind'].default for kind in WAYS)})"
    )


def slowness(recipe: Recipe, by: str | None = None) -> str | None:
    """Why a model generates slowly, in words for its user; None where it does not."""
    if isinstance(speaking(recipe, by), Masked):
        return "a masked model reads the whole text again for every piece"
    if not recipe.encoder.caches:
        return f"{_what_keeps_nothing(recipe)} of what it has read: every piece reads all before it"
    return None


def by_continuing(
    model: Model,
    tokenizer: Tokenizer,
    texts: list[Growing],
    decoding: Decoding,
    objective: Causal,
) -> list[Continuation]:
    """One piece after the other, each read once where the mixer allows it."""
    rule, padding = reading_rule(model), tokenizer.specials.pad

    def opened(rows: Pieces) -> GrowingRows:
        if model.recipe.encoder.caches:
            return CachedRows(model, rows, rule, padding, model.recipe.encoder.reach)
        return WholeRows(model, rows, rule, padding)

    return continued(texts, opened, tokenizer, decoding, model.encoder.longest)


def by_asking(
    model: Model,
    tokenizer: Tokenizer,
    texts: list[Growing],
    decoding: Decoding,
    objective: Permutation,
) -> list[Continuation]:
    """The same in the order of the text, a place that asks behind what is there."""
    if not model.recipe.encoder.caches:
        raise UserError(
            f"{model.recipe.name} cannot generate: places that ask need what was read to be kept, "
            f"and {_what_keeps_nothing(model.recipe)} of it"
        )
    rule = model.encoder.rule & objective.visibility

    def opened(rows: Pieces) -> GrowingRows:
        return AskingRows(model, rows, rule, tokenizer.specials.pad, None)

    return continued(texts, opened, tokenizer, decoding, model.encoder.longest)


def by_filling(
    model: Model,
    tokenizer: Tokenizer,
    texts: list[Growing],
    decoding: Decoding,
    objective: Masked,
) -> list[Continuation]:
    """Hidden places behind the prompt, filled one after another."""
    return filled(model, tokenizer, texts, decoding, objective)


def _what_keeps_nothing(recipe: Recipe) -> str:
    encoder = recipe.encoder
    if encoder.mixer.caches:
        return f"the depth {encoder.depth.kind} keeps nothing"  # type: ignore[attr-defined]
    return f"the mixer {encoder.mixer.kind} keeps nothing"  # type: ignore[attr-defined]


def _require_room(texts: Sequence[Growing], longest: int | None) -> None:
    for text in texts:
        if longest is not None and len(text.pieces) > longest:
            raise UserError(
                f"a prompt of {len(text.pieces)} pieces is longer than the {longest} that the "
                f"model reads: shorten it ({text.prompt[:40]}...)"
            )


WAYS: dict[type[Objective], Way] = {
    Causal: by_continuing,
    Permutation: by_asking,
    Masked: by_filling,
}
"""How a model generates that is asked such a question."""
