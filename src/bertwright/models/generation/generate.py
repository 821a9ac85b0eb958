"""Generate with the method of a model's objective."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
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
    UncachedSequences,
)
from bertwright.models.model import Model
from bertwright.models.scoring.likelihood import causal_visibility
from bertwright.objectives.causal import CausalLM
from bertwright.objectives.denoising import Denoising
from bertwright.objectives.masked import MaskedLM
from bertwright.objectives.objective import Objective
from bertwright.objectives.permutation import PermutationLM
from bertwright.recipes import Recipe

GenerationMethod = Callable[
    [Model, Tokenizer, list[GenerationState], GenerationConfig, Any, "GenerationLanguages"],
    list[GeneratedText],
]


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
    if languages.output is not None and not isinstance(objective, Denoising):
        raise UserError("generate: continuations are in the language of the prompt: use --language")
    method = next(m for kind, m in GENERATION_METHODS.items() if isinstance(objective, kind))
    if config.num_beams > 1 and isinstance(objective, MaskedLM):
        raise UserError("generate: beam search needs a left-to-right model: leave --num-beams out")
    if num_samples > config.num_beams > 1:
        raise UserError(
            f"generate: {config.num_beams} beams give at most {config.num_beams} samples: use more "
            f"beams or fewer samples"
        )
    if config.sweeps > 1 and not isinstance(objective, MaskedLM):
        raise UserError(
            "generate: sweeps resample masked tokens, and this is no masked model: leave them out"
        )
    if model.encoder.visibility.depends_on_text_length and not isinstance(
        objective, MaskedLM | Denoising
    ):
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
    results = method(model, tokenizer, texts, config, objective, languages)
    return [continuation for continuation in results if continuation.sample < num_samples]


def _initial_state(
    recipe: Recipe, objective: Objective, tokenizer: Tokenizer, prompt: str, sample: int
) -> GenerationState:
    """Return the state of a prompt to continue, or to encode for a decoder."""
    specials = tokenizer.special_tokens
    prompt_ids = [recipe.assembly.start_token(specials), *tokenizer.encode(prompt)]
    if not isinstance(objective, Denoising):
        return GenerationState(prompt, prompt_ids, sample)
    start_id: int = getattr(specials, objective.noising.begins)
    source_ids = (*prompt_ids, specials.end)
    first_position = objective.noising.first_position(source_ids, specials)
    return GenerationState(prompt, [start_id], sample, source_ids, first_position)


def generation_objective(recipe: Recipe, name: str | None = None) -> Objective:
    """Return the objective to generate with.

    It is the named one, or the first in the order of ``GENERATION_METHODS`` from the last phase
    that has any. Raises UserError if there is none.
    """
    if name is not None and name not in recipe.objectives:
        raise UserError(
            f"{recipe.name} has no objective {name!r}{did_you_mean(name, recipe.objectives)}"
        )
    phases = range(len(recipe.phases)) if recipe.objectives else ()
    by_phase = [recipe.objectives_of(phase) for phase in reversed(phases)]
    for objectives in by_phase if name is None else [{name: recipe.objectives[name]}]:
        for kind in GENERATION_METHODS:
            for objective in objectives.values():
                if isinstance(objective, kind):
                    return objective
    names = ", ".join([name] if name else recipe.objectives) or "none"
    raise UserError(
        f"{recipe.name} cannot generate with its objectives ({names}): it needs one of "
        f"{', '.join(kind.model_fields['kind'].default for kind in GENERATION_METHODS)}"
    )


def slow_generation_reason(recipe: Recipe, name: str | None = None) -> str | None:
    """Return why generation is slow, for users; None if it is not."""
    if isinstance(generation_objective(recipe, name), MaskedLM):
        return "a masked model encodes the whole text again for every token"
    if not recipe.encoder.supports_cache:
        return f"{_uncached_component(recipe)}: every token encodes all tokens before it again"
    return None


def generate_causal(
    model: Model,
    tokenizer: Tokenizer,
    texts: list[GenerationState],
    config: GenerationConfig,
    objective: CausalLM,
    languages: GenerationLanguages,
) -> list[GeneratedText]:
    """Generate token by token, with cached keys and values where the mixer supports it."""
    visibility, pad_id = causal_visibility(model), tokenizer.special_tokens.pad

    def open_sequences(texts: Sequence[GenerationState]) -> GrowingSequences:
        sequences = [text.token_ids for text in texts]
        if model.recipe.encoder.supports_cache:
            max_lookback = model.recipe.encoder.max_lookback
            language = languages.prompt
            return CachedSequences(model, sequences, visibility, pad_id, max_lookback, language)
        return UncachedSequences(model, sequences, visibility, pad_id, languages.prompt)

    return _generate(texts, open_sequences, tokenizer, config, model.encoder.max_length)


def generate_permuted(
    model: Model,
    tokenizer: Tokenizer,
    texts: list[GenerationState],
    config: GenerationConfig,
    objective: PermutationLM,
    languages: GenerationLanguages,
) -> list[GeneratedText]:
    """Generate token by token from a query-stream position after the text."""
    if not model.recipe.encoder.supports_cache:
        raise UserError(
            f"{model.recipe.name} cannot generate: query-stream positions need a cache, and "
            f"{_uncached_component(model.recipe)}"
        )
    visibility = model.encoder.visibility & objective.visibility

    def open_sequences(texts: Sequence[GenerationState]) -> GrowingSequences:
        sequences = [text.token_ids for text in texts]
        return QueryStreamSequences(
            model, sequences, visibility, tokenizer.special_tokens.pad, None, languages.prompt
        )

    return _generate(texts, open_sequences, tokenizer, config, model.encoder.max_length)


def generate_with_decoder(
    model: Model,
    tokenizer: Tokenizer,
    texts: list[GenerationState],
    config: GenerationConfig,
    objective: Denoising,
    languages: GenerationLanguages,
) -> list[GeneratedText]:
    """Generate decoder tokens one by one from the encoded prompt."""
    assert model.decoder is not None, "a denoising recipe has a decoder"
    pad_id = tokenizer.special_tokens.pad

    def open_sequences(texts: Sequence[GenerationState]) -> GrowingSequences:
        starts = [text.token_ids[0] for text in texts]
        first = [text.first_position for text in texts]
        sources = [text.source_ids for text in texts]
        return DecoderSequences(
            model, sources, starts, first, pad_id, languages.prompt, languages.output
        )

    return _generate(texts, open_sequences, tokenizer, config, model.decoder.max_length)


def _generate(
    texts: list[GenerationState],
    open_sequences: Callable[[Sequence[GenerationState]], GrowingSequences],
    tokenizer: Tokenizer,
    config: GenerationConfig,
    max_length: int | None,
) -> list[GeneratedText]:
    method = sample_texts if config.num_beams == 1 else beam_search
    return method(
        texts, open_sequences, tokenizer, config, StoppingCriteria(tokenizer, config, max_length)
    )


def generate_masked(
    model: Model,
    tokenizer: Tokenizer,
    texts: list[GenerationState],
    config: GenerationConfig,
    objective: MaskedLM,
    languages: GenerationLanguages,
) -> list[GeneratedText]:
    """Append masks to the prompts and fill them."""
    return fill_appended_masks(model, tokenizer, texts, config, languages.prompt)


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


GENERATION_METHODS: dict[type[Objective], GenerationMethod] = {
    CausalLM: generate_causal,
    PermutationLM: generate_permuted,
    Denoising: generate_with_decoder,
    MaskedLM: generate_masked,
}
"""How to generate with each objective."""
