"""Which way a model generates, by what it was asked in training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.model.generating.beams import searched
from bertwright.model.generating.continuing import Continuation, Ending, Growing, continued
from bertwright.model.generating.decoding import Decoding
from bertwright.model.generating.filling import filled
from bertwright.model.generating.rows import (
    AskingRows,
    CachedRows,
    DecodedRows,
    GrowingRows,
    WholeRows,
)
from bertwright.model.likelihood import reading_rule
from bertwright.model.model import Model
from bertwright.objectives.causal import Causal
from bertwright.objectives.denoising import Denoising
from bertwright.objectives.masked import Masked
from bertwright.objectives.objective import Objective
from bertwright.objectives.permutation import Permutation
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Tokenizer

Way = Callable[[Model, Tokenizer, list[Growing], Decoding, Any, "Spoken"], list[Continuation]]


@dataclass(frozen=True)
class Spoken:
    """The languages of a prompt and of what a decoder says, as numbers among those that the model
    knows; None for the first."""

    read: int | None = None
    said: int | None = None


def generate(
    model: Model,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    decoding: Decoding,
    num_samples: int = 1,
    by: str | None = None,
    spoken: Spoken = Spoken(),
) -> list[Continuation]:
    """``num_samples`` continuations of every prompt, one prompt after the other.

    ``by`` names the question of the recipe that is asked, where it has several.
    """
    objective = speaking(model.recipe, by)
    if spoken.said is not None and not isinstance(objective, Denoising):
        raise UserError("generate: what is added is in the language of the prompt: use --language")
    way = next(way for kind, way in WAYS.items() if isinstance(objective, kind))
    if decoding.beams > 1 and isinstance(objective, Masked):
        raise UserError("generate: beams are of models that go on at the end of a text")
    if num_samples > decoding.beams > 1:
        raise UserError(f"generate: {decoding.beams} beams end in as many texts: ask for no more")
    if decoding.sweeps > 1 and not isinstance(objective, Masked):
        raise UserError("generate: sweeps are of masked models: what others added stays as it is")
    if model.encoder.rule.by_extent and not isinstance(objective, Masked | Denoising):
        raise UserError(
            f"{model.recipe.name} cannot generate: its encoder.visibility asks how long a text is, "
            f"which is not known before its end"
        )
    texts = [
        _begun(model.recipe, objective, tokenizer, prompt, sample)
        for prompt in prompts
        for sample in range(num_samples if decoding.beams == 1 else 1)
    ]
    _require_room(texts, model)
    found = way(model, tokenizer, texts, decoding, objective, spoken)
    return [continuation for continuation in found if continuation.sample < num_samples]


def _begun(
    recipe: Recipe, objective: Objective, tokenizer: Tokenizer, prompt: str, sample: int
) -> Growing:
    """A prompt that is to be continued, or read by the encoder of a decoder."""
    specials = tokenizer.specials
    opened = [recipe.assembly.opening(specials), *tokenizer.encode(prompt)]
    if not isinstance(objective, Denoising):
        return Growing(prompt, opened, sample)
    begin: int = getattr(specials, objective.noising.begins)
    source = (*opened, specials.end)
    return Growing(prompt, [begin], sample, source, objective.noising.first(source, specials))


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
    spoken: Spoken,
) -> list[Continuation]:
    """One piece after the other, each read once where the mixer allows it."""
    rule, padding = reading_rule(model), tokenizer.specials.pad

    def opened(texts: Sequence[Growing]) -> GrowingRows:
        rows = [text.pieces for text in texts]
        if model.recipe.encoder.caches:
            reach = model.recipe.encoder.reach
            return CachedRows(model, rows, rule, padding, reach, spoken.read)
        return WholeRows(model, rows, rule, padding, spoken.read)

    return _grown(texts, opened, tokenizer, decoding, model.encoder.longest)


def by_asking(
    model: Model,
    tokenizer: Tokenizer,
    texts: list[Growing],
    decoding: Decoding,
    objective: Permutation,
    spoken: Spoken,
) -> list[Continuation]:
    """The same in the order of the text, a place that asks behind what is there."""
    if not model.recipe.encoder.caches:
        raise UserError(
            f"{model.recipe.name} cannot generate: places that ask need what was read to be kept, "
            f"and {_what_keeps_nothing(model.recipe)} of it"
        )
    rule = model.encoder.rule & objective.visibility

    def opened(texts: Sequence[Growing]) -> GrowingRows:
        rows = [text.pieces for text in texts]
        return AskingRows(model, rows, rule, tokenizer.specials.pad, None, spoken.read)

    return _grown(texts, opened, tokenizer, decoding, model.encoder.longest)


def by_decoding(
    model: Model,
    tokenizer: Tokenizer,
    texts: list[Growing],
    decoding: Decoding,
    objective: Denoising,
    spoken: Spoken,
) -> list[Continuation]:
    """One piece of the decoder after the other, beside the prompt, which the encoder reads."""
    assert model.decoder is not None, "a recipe that decodes has a decoder"
    padding = tokenizer.specials.pad

    def opened(texts: Sequence[Growing]) -> GrowingRows:
        begins = [text.pieces[0] for text in texts]
        first = [text.first for text in texts]
        sources = [text.source for text in texts]
        return DecodedRows(model, sources, begins, first, padding, spoken.read, spoken.said)

    return _grown(texts, opened, tokenizer, decoding, model.decoder.longest)


def _grown(
    texts: list[Growing],
    opened: Callable[[Sequence[Growing]], GrowingRows],
    tokenizer: Tokenizer,
    decoding: Decoding,
    longest: int | None,
) -> list[Continuation]:
    """Every text to its end, or its best ends; ``longest`` is how many pieces can be read."""
    way = continued if decoding.beams == 1 else searched
    return way(texts, opened, tokenizer, decoding, Ending(tokenizer, decoding, longest))


def by_filling(
    model: Model,
    tokenizer: Tokenizer,
    texts: list[Growing],
    decoding: Decoding,
    objective: Masked,
    spoken: Spoken,
) -> list[Continuation]:
    """Hidden places behind the prompt, filled one after another."""
    return filled(model, tokenizer, texts, decoding, spoken.read)


def _what_keeps_nothing(recipe: Recipe) -> str:
    encoder = recipe.encoder
    if encoder.mixer.caches:
        return f"the depth {encoder.depth.kind} keeps nothing"  # type: ignore[attr-defined]
    return f"the mixer {encoder.mixer.kind} keeps nothing"  # type: ignore[attr-defined]


def _require_room(texts: Sequence[Growing], model: Model) -> None:
    reads = model.encoder.longest
    says = model.decoder.longest if model.decoder is not None else None
    for text in texts:
        read = len(text.source or text.pieces)
        if reads is not None and read > reads:
            raise UserError(
                f"a prompt of {read} pieces is longer than the {reads} that the "
                f"model reads: shorten it ({text.prompt[:40]}...)"
            )
        if says is not None and text.first >= says:
            raise UserError(
                f"what is to be said stands at place {text.first} of a prompt, and the model "
                f"speaks of {says}: shorten what is before it ({text.prompt[:40]}...)"
            )


WAYS: dict[type[Objective], Way] = {
    Causal: by_continuing,
    Permutation: by_asking,
    Denoising: by_decoding,
    Masked: by_filling,
}
"""How a model generates that is asked such a question."""
