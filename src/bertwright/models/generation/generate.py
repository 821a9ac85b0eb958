"""Text generation with the method of a model's objective."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import SpecialTokens, Tokenizer
from bertwright.models.generation.beam_search import beam_search
from bertwright.models.generation.config import GenerationConfig
from bertwright.models.generation.masked_filling import fill_appended_masks
from bertwright.models.generation.sampling import (
    GeneratedText,
    GenerationState,
    StoppingCriteria,
    sample_texts,
)
from bertwright.models.generation.sequences import (
    CachedSequences,
    DecoderSequences,
    GrowingSequences,
    QueryStreamSequences,
    UncachedDecoderSequences,
    UncachedSequences,
)
from bertwright.models.model import Model
from bertwright.models.scoring.likelihood import causal_visibility
from bertwright.objectives.objective import Objective, combined_visibility
from bertwright.recipes import Recipe

GENERATION_METHODS = ("causal", "permutation", "denoising", "masked")
"""Kinds of prediction that can generate text, in order of preference."""


@dataclass(frozen=True)
class GenerationLanguages:
    """Language ids of the prompts and of a decoder's output; None means the first language."""

    prompt: int | None = None
    output: int | None = None


def generate(
    model: Model,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    config: GenerationConfig,
    num_samples: int = 1,
    objective_name: str | None = None,
    languages: GenerationLanguages = GenerationLanguages(),
) -> list[GeneratedText]:
    """Return ``num_samples`` continuations of every prompt, one prompt after the other.

    ``objective_name`` selects an objective of the recipe; see :func:`generation_objective`.
    """
    objective = generation_objective(model.recipe, objective_name)
    method, uses_decoder = objective.capabilities.prediction, objective.capabilities.uses_decoder
    if languages.output is not None and not uses_decoder:
        raise UserError("generate: continuations are in the language of the prompt: use --language")
    if config.num_beams > 1 and method == "masked":
        raise UserError("generate: beam search needs a left-to-right model: leave --num-beams out")
    if num_samples > config.num_beams > 1:
        raise UserError(
            f"generate: {config.num_beams} beams give at most {config.num_beams} samples: use more "
            f"beams or fewer samples"
        )
    if config.sweeps > 1 and method != "masked":
        raise UserError(
            "generate: sweeps resample masked tokens, and this is no masked model: leave them out"
        )
    if model.encoder.visibility.depends_on_text_length and method in ("causal", "permutation"):
        raise UserError(
            f"{model.recipe.name} cannot generate: its encoder.visibility depends on the text's "
            f"length, which is unknown before it ends"
        )
    texts = [
        _initial_state(model.recipe, objective, tokenizer, prompt, sample)
        for prompt in prompts
        for sample in range(num_samples if config.num_beams == 1 else 1)
    ]
    _require_room(texts, model)
    if method == "masked":
        return fill_appended_masks(model, tokenizer, texts, config, languages.prompt)
    results = _search(model, objective, tokenizer, texts, config, languages)
    return [continuation for continuation in results if continuation.sample < num_samples]


def generate_outputs(
    model: Model,
    tokenizer: Tokenizer,
    sources: Sequence[Sequence[int]],
    config: GenerationConfig,
    languages: GenerationLanguages = GenerationLanguages(),
) -> list[GeneratedText]:
    """Return the output of the decoder for every source, token ids with special tokens."""
    objective = decoder_objective(model.recipe)
    start_id = decoder_start_id(model.recipe, tokenizer.special_tokens)
    texts = [GenerationState("", [start_id], 0, tuple(source)) for source in sources]
    results = _search(model, objective, tokenizer, texts, config, languages)
    return [output for output in results if output.sample == 0]


def decoder_objective(recipe: Recipe) -> Objective:
    """Return the objective that trains the decoder; UserError if there is none."""
    for objective in recipe.objectives.values() if recipe.decoder is not None else ():
        if objective.decoder_noising is not None:
            return objective
    raise UserError(
        f"{recipe.name} has no decoder that generates text: choose an encoder-decoder, such as "
        f"t5, bart, mass or transformer"
    )


def decoder_start_id(recipe: Recipe, specials: SpecialTokens) -> int:
    """Return the id of the token that starts the decoder input."""
    noising = decoder_objective(recipe).decoder_noising
    assert noising is not None, "the objective trains a decoder"
    return getattr(specials, noising.begins)


def _search(
    model: Model,
    objective: Objective,
    tokenizer: Tokenizer,
    texts: Sequence[GenerationState],
    config: GenerationConfig,
    languages: GenerationLanguages,
) -> list[GeneratedText]:
    """Complete all texts, by sampling or by beam search."""
    open_sequences = partial(
        _open_sequences, model, objective, tokenizer.special_tokens.pad, languages
    )
    uses_decoder = objective.capabilities.uses_decoder
    stack = model.decoder if model.decoder is not None and uses_decoder else model.encoder
    criteria = StoppingCriteria(tokenizer, config, stack.max_length)
    search = sample_texts if config.num_beams == 1 else beam_search
    return search(texts, open_sequences, criteria)


def _initial_state(
    recipe: Recipe, objective: Objective, tokenizer: Tokenizer, prompt: str, sample: int
) -> GenerationState:
    """Return the initial state of a prompt, to be continued or to be encoded for a decoder."""
    specials = tokenizer.special_tokens
    prompt_ids = [recipe.assembly.start_token(specials), *tokenizer.encode(prompt)]
    if (noising := objective.decoder_noising) is None:
        return GenerationState(prompt, prompt_ids, sample)
    start_id: int = getattr(specials, noising.begins)
    source_ids = (*prompt_ids, specials.end)
    first_position = noising.first_position(source_ids, specials)
    return GenerationState(prompt, [start_id], sample, source_ids, first_position)


def generation_objective(recipe: Recipe, name: str | None = None) -> Objective:
    """Return the objective to generate with.

    It is the named objective, or else the first in the order of ``GENERATION_METHODS`` from the
    last phase that has one. Errors: UserError if there is none.
    """
    if name is not None and name not in recipe.objectives:
        raise UserError(
            f"{recipe.name} has no objective {name!r}{did_you_mean(name, recipe.objectives)}"
        )
    phases = range(len(recipe.phases)) if recipe.objectives else ()
    by_phase = [recipe.objectives_of(phase) for phase in reversed(phases)]
    for objectives in by_phase if name is None else [{name: recipe.objectives[name]}]:
        for method in GENERATION_METHODS:
            for objective in objectives.values():
                if objective.capabilities.prediction == method:
                    return objective
    names = ", ".join([name] if name else recipe.objectives) or "none"
    raise UserError(
        f"{recipe.name} cannot generate with its objectives ({names}): it needs one of "
        f"{', '.join(GENERATION_METHODS)}"
    )


def slow_generation_reason(recipe: Recipe, name: str | None = None) -> str | None:
    """Return the reason why generation is slow, for users; None if it is not."""
    if generation_objective(recipe, name).capabilities.prediction == "masked":
        return "a masked model encodes the whole text again for every token"
    if not recipe.encoder.supports_cache:
        return f"{_uncached_component(recipe)}: every token encodes all tokens before it again"
    return None


def _open_sequences(
    model: Model,
    objective: Objective,
    pad_id: int,
    languages: GenerationLanguages,
    texts: Sequence[GenerationState],
) -> GrowingSequences:
    """Start a batch of texts, with cached keys and values if possible."""
    encoder, token_ids = model.recipe.encoder, [text.token_ids for text in texts]
    if objective.decoder_noising is not None:
        starts, positions = zip(*((t.token_ids[0], t.first_position) for t in texts), strict=True)
        sources = [text.source_ids for text in texts]
        assert model.recipe.decoder is not None, "a denoising recipe has a decoder"
        has_cache = model.recipe.decoder.supports_cache
        open_decoder = DecoderSequences if has_cache else UncachedDecoderSequences
        return open_decoder(
            model, sources, starts, positions, pad_id, languages.prompt, languages.output
        )
    if objective.capabilities.prediction == "permutation":
        if not encoder.supports_cache:
            raise UserError(
                f"{model.recipe.name} cannot generate: query-stream positions need a cache, and "
                f"{_uncached_component(model.recipe)}"
            )
        visibility = model.encoder.visibility & combined_visibility([objective])
        return QueryStreamSequences(model, token_ids, visibility, pad_id, None, languages.prompt)
    visibility = causal_visibility(model)
    if not encoder.supports_cache:
        return UncachedSequences(model, token_ids, visibility, pad_id, languages.prompt)
    return CachedSequences(
        model, token_ids, visibility, pad_id, encoder.max_lookback, languages.prompt
    )


def _uncached_component(recipe: Recipe) -> str:
    encoder = recipe.encoder
    if encoder.mixer.supports_cache:
        return f"the depth {encoder.depth.kind} has no cache"  # type: ignore[attr-defined]
    return f"the mixer {encoder.mixer.kind} has no cache"  # type: ignore[attr-defined]


def _require_room(texts: Sequence[GenerationState], model: Model) -> None:
    max_prompt = model.encoder.max_length
    max_output = model.decoder.max_length if model.decoder is not None else None
    for text in texts:
        length = len(text.source_ids or text.token_ids)
        if max_prompt is not None and length > max_prompt:
            raise UserError(
                f"a prompt of {length} tokens exceeds the model's maximum of {max_prompt}: "
                f"shorten it ({text.prompt[:40]}...)"
            )
        if max_output is not None and text.first_position >= max_output:
            raise UserError(
                f"the output begins at position {text.first_position} of a prompt, and the "
                f"decoder has {max_output}: shorten the text before it ({text.prompt[:40]}...)"
            )
