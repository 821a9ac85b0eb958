"""Checks for incompatible settings of a recipe; each error says what to change."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bertwright.core.schedules import ConstantSchedule
from bertwright.modules.attention.attention import AttentionConfig
from bertwright.modules.attention.mask import (
    PermutationVisibility,
    is_bidirectional,
    is_split_by_direction,
    sees_self_only,
)
from bertwright.modules.attention.positions import (
    AxialPositionsConfig,
    LearnedPositionsConfig,
    PositionsConfig,
)
from bertwright.modules.embeddings.adaptive import AdaptiveEmbeddingsConfig
from bertwright.objectives import Objective
from bertwright.objectives.heads.adaptive_lm_head import AdaptiveSoftmaxConfig
from bertwright.objectives.schedule import ObjectiveGroup

if TYPE_CHECKING:
    from bertwright.recipes.schema import Recipe


def check_compatibility(recipe: "Recipe") -> None:
    """Raise ValueError for the first incompatibility of a recipe's settings."""
    if recipe.decoder is not None:
        recipe.decoder.stack_config(recipe.encoder)
        if recipe.decoder.vector_pooling not in (None, recipe.vectors.pooling):
            raise ValueError(
                f"decoder.source is {recipe.decoder.vector_pooling}, but vectors.pooling is "
                f"{recipe.vectors.pooling}: pool the vectors of texts in one way"
            )
    if not recipe.objectives:
        return
    for number in range(len(recipe.phases)):
        _check_phase(recipe, number)
    _check_growing_depth(recipe)
    _check_layer_levels(recipe)
    _check_sequential_format(recipe)
    _check_embedding_tables(recipe)
    if recipe.assembly.needs_dropout and not recipe.encoder.has_dropout:
        raise ValueError(
            "assembly.copies: copies of a sentence differ by dropout alone: set encoder.dropout"
        )


def _check_sequential_format(recipe: "Recipe") -> None:
    if recipe.encoder.memory_length and not recipe.assembly.is_sequential:
        raise ValueError(
            "encoder.memory_length needs sequences that continue from step to step: set "
            "assembly.kind=contiguous"
        )
    carries_backward = recipe.encoder.carries_backward
    if recipe.encoder.memory_length and recipe.assembly.is_backward != carries_backward:
        raise ValueError(
            f"encoder.memory_length keeps the text "
            f"{'after' if carries_backward else 'before'} a sequence: set assembly.backward to "
            f"{str(carries_backward).lower()}, or memory_length to 0"
        )
    if 1 < recipe.encoder.embeddings.segments < recipe.assembly.num_segments:
        raise ValueError(
            f"assembly.kind has {recipe.assembly.num_segments} segments, but the encoder "
            f"{recipe.encoder.embeddings.segments}: set encoder.embeddings.segments to 0 or "
            f"{recipe.assembly.num_segments}"
        )
    is_constant = isinstance(recipe.batch_tokens, ConstantSchedule) and all(
        phase.length is None and phase.batch == 1.0 for phase in recipe.phases
    )
    uses_decoder = any(o.capabilities.uses_decoder for o in recipe.objectives.values())
    if recipe.assembly.num_directions > 1 and uses_decoder:
        raise ValueError(
            "assembly.kind=half-reversed reads sequences from the end, a decoder generates from "
            "the start: choose another input format"
        )
    if recipe.assembly.is_sequential and not is_constant:
        raise ValueError("an input format in text order needs one length and one batch size")


def _check_growing_depth(recipe: "Recipe") -> None:
    depths = [phase.depth for phase in recipe.phases]
    if depths != sorted(depths) or depths[-1] != 1.0:
        raise ValueError("phases: depth must not decrease from phase to phase, and must end at 1")
    if depths[0] == 1.0:
        return
    encoder = recipe.encoder
    obstacles = {
        "blocks of different widths cannot be stacked": len(set(encoder.hidden_widths)) > 1,
        "a decoder cannot be stacked: leave out depth": recipe.decoder is not None,
        "stacked blocks have no memory: set encoder.memory_length to 0": encoder.memory_length > 0,
        "blocks that share their parameters cannot be stacked": encoder.depth.sharing != "none",
        "blocks with value embeddings cannot be stacked: set encoder.value_embeddings to null": (
            encoder.value_embeddings is not None
        ),
        "blocks of different sublayers cannot be stacked": (
            len(set(encoder.depth.sublayer_orders())) > 1
        ),
        "the first block lacks a norm that its copies need: set encoder.norm.skip_first=false, or "
        "leave out depth": encoder.norm.skips_first_norm,
        "blocks that use the outputs of all earlier ones cannot be stacked": (
            encoder.residual.needs_sublayer_outputs
        ),
    }
    _raise_first("phases: ", obstacles)


def _raise_first(prefix: str, obstacles: Mapping[str, bool]) -> None:
    """Raise ValueError with the first obstacle that applies, if any."""
    for sentence, applies in obstacles.items():
        if applies:
            raise ValueError(prefix + sentence)


def _check_layer_levels(recipe: "Recipe") -> None:
    levels = len(recipe.encoder.depth.sublayer_orders()) + 2
    for number, phase in enumerate(recipe.phases):
        if phase.trainable_layers is not None and phase.trainable_layers > levels:
            raise ValueError(f"phases.{number}.trainable_layers: there are only {levels} levels")
    if recipe.optimiser.layer_decay == 1.0 and not any(p.trainable_layers for p in recipe.phases):
        return
    settings = "optimiser.layer_decay and trainable_layers of phases"
    has_generator = any(o.capabilities.is_generator for o in recipe.objectives.values())
    obstacles = {
        f"a decoder's blocks have no levels: leave out {settings}": recipe.decoder is not None,
        f"a generator's blocks have no levels: leave out {settings}": has_generator,
        f"blocks with shared parameters are one level: leave out {settings}, or set "
        f"encoder.depth.sharing=none": recipe.encoder.depth.sharing != "none",
        f"phases: levels need all blocks from the start: leave out depth, or {settings}": (
            recipe.phases[0].depth < 1.0
        ),
    }
    _raise_first("", obstacles)


def _check_phase(recipe: "Recipe", phase: int) -> None:
    objectives = recipe.objectives_of(phase)
    if not objectives:
        raise ValueError(f"phases.{phase} has no objective: name at least one")
    for group in recipe.objective_schedule(phase):
        _check_objective_group(recipe, phase, group)
    input_format = recipe.input_format_of(phase)
    length, text_length = input_format.length, input_format.max_text_length
    _check_position_table(phase, "encoder", recipe.encoder.positions, text_length)
    _check_decoder(recipe, objectives)
    if recipe.decoder is not None:
        lengths = [o.num_decoder_positions(length) for o in objectives.values()]
        _check_position_table(
            phase, "decoder", recipe.decoder.stack_config(recipe.encoder).positions, *lengths
        )
    tasks = recipe.encoder.embeddings.tasks
    for name, objective in objectives.items():
        if objective.capabilities.needs_halting and recipe.encoder.depth.runs_every_block:
            raise ValueError(
                f"phases.{phase}: objectives.{name} needs adaptive computation: set "
                f"encoder.depth.kind to halting, or leave it out"
            )
        if objective.task is not None and objective.task >= tasks:
            raise ValueError(
                f"objectives.{name}.task is {objective.task}, but the encoder has {tasks} tasks, "
                f"from 0: raise encoder.embeddings.tasks"
            )
        if objective.input_format is not None and (
            objective.fraction is None or recipe.assembly.is_sequential
        ):
            raise ValueError(
                f"objectives.{name} has its own input format: give it a fraction of the steps, and "
                f"set assembly.kind to one that is not contiguous"
            )


def _check_position_table(phase: int, part: str, positions: PositionsConfig, *lengths: int) -> None:
    """Raise ValueError unless the position table has a row for every position."""
    longest = max(lengths, default=0)
    if (
        isinstance(positions, AxialPositionsConfig | LearnedPositionsConfig)
        and longest > positions.num_positions
    ):
        key = "size" if isinstance(positions, LearnedPositionsConfig) else "shape"
        raise ValueError(
            f"phases.{phase}: a length of {longest} is more than {part}.positions.{key} "
            f"allows ({positions.num_positions})"
        )


def _check_objective_group(recipe: "Recipe", phase: int, group: ObjectiveGroup) -> None:
    """Check that objectives of the same step agree with each other and with their visibility."""
    visibility = recipe.encoder.visibility & group.visibility
    named = list(group.objectives.items())
    with_decoder = [name for name, objective in named if objective.capabilities.uses_decoder]
    if with_decoder and len(named) > 1:
        raise ValueError(
            f"objectives.{with_decoder[0]} changes the text, so it cannot share a step: put it in "
            f"a separate phase, or give each a fraction of the steps"
        )
    input_format = recipe.input_format_of(phase, group.objectives.values())
    for index, (name, objective) in enumerate(named):
        if (reason := objective.format_conflict(input_format)) is not None:
            raise ValueError(f"objectives.{name} {reason}")
        reason = objective.order_conflict(dict(named[:index]), dict(named[index + 1 :]))
        if reason is not None:
            raise ValueError(f"phases.{phase}: objectives.{name} {reason}")
        objective.generator_config(recipe.encoder)
    if sees_self_only(visibility):
        raise ValueError(
            f"phases.{phase}: objectives.causal.direction and encoder.visibility have opposite "
            f"directions, so that a token sees only itself"
        )
    is_plain_attention = (
        isinstance(recipe.encoder.mixer, AttentionConfig) and recipe.encoder.sliding_window is None
    )
    if isinstance(group.visibility, PermutationVisibility) and not (
        is_plain_attention and is_bidirectional(recipe.encoder.visibility)
    ):
        raise ValueError(
            f"phases.{phase}: objectives.permutation appends query positions to the text: set "
            f"encoder.visibility to bidirectional or document, encoder.sliding_window to null and "
            f"encoder.mixer.kind to attention"
        )
    if recipe.encoder.embeddings.reads_neighbours and not is_bidirectional(visibility):
        raise ValueError(
            f"phases.{phase}: encoder.embeddings reads the next token, too: choose another kind, "
            f"or bidirectional objectives"
        )
    is_split = is_split_by_direction(recipe.encoder.visibility)
    predicts_tokens = any(
        o.capabilities.predicts_tokens or o.capabilities.is_generator
        for o in group.objectives.values()
    )
    if predicts_tokens and is_split_by_direction(group.visibility) != is_split:
        raise ValueError(
            f"phases.{phase}: objectives.causal.direction both and encoder.visibility "
            f"both-ways need each other, and exclude other objectives that predict tokens"
        )


def _check_embedding_tables(recipe: "Recipe") -> None:
    """Check all modules that share the token embeddings."""
    tables, output = recipe.encoder.embeddings, recipe.output
    shared_width = output.width(recipe.encoder) - output.untied_width(recipe.encoder)
    if output.is_tied and shared_width != recipe.encoder.token_embedding_width:
        raise ValueError(
            f"output: token embeddings have width {recipe.encoder.token_embedding_width}, hidden "
            f"states {shared_width}: set output.transform to true, or output.kind to untied"
        )
    kind = tables.kind  # type: ignore[attr-defined]
    is_matching = (
        isinstance(tables, AdaptiveEmbeddingsConfig)
        and isinstance(output, AdaptiveSoftmaxConfig)
        and tables.cutoffs == output.cutoffs
    )
    if output.is_tied and not tables.has_single_table and not is_matching:
        raise ValueError(
            f"output shares the token embeddings, but {kind} embeddings have no table to share: "
            f"set output.kind to untied, or both to adaptive with the same cutoffs"
        )
    for name, objective in recipe.objectives.items():
        if objective.capabilities.uses_embedding_table and not tables.has_single_table:
            raise ValueError(
                f"objectives.{name} shares the token embeddings, but {kind} embeddings have no "
                f"table to share: set encoder.embeddings.kind to tokens"
            )
        if objective.capabilities.is_generator and tables.reads_neighbours:
            raise ValueError(
                f"objectives.{name} shares the segment and position embeddings, which {kind} "
                f"embeddings have in another width: set encoder.embeddings.kind to tokens or "
                f"factorised"
            )


def _check_decoder(recipe: "Recipe", objectives: dict[str, Objective]) -> None:
    with_decoder = [
        name for name, objective in objectives.items() if objective.capabilities.uses_decoder
    ]
    if with_decoder and recipe.decoder is None:
        raise ValueError(f"objectives.{with_decoder[0]} needs a decoder: add one, as decoder: {{}}")
    if with_decoder and recipe.assembly.isolation_setting:
        raise ValueError(
            f"a decoder needs one text per sequence: set assembly."
            f"{recipe.assembly.isolation_setting} to false"
        )
