"""The default head for an encoder and an output type, overrides of it, and its checks."""

from collections.abc import Sequence
from itertools import islice
from typing import Literal, get_args

from pydantic import Field

from bertwright.core.config import Settings
from bertwright.modules.attention.mask import is_causal, is_split_by_direction, reads_backward
from bertwright.objectives.heads.lm_head import LMHeadConfig
from bertwright.recipes import Recipe
from bertwright.tasks.adapters import AdaptationConfig
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Example, Examples
from bertwright.tasks.heads.answer_network import AnswerNetworkHeadConfig
from bertwright.tasks.heads.decoder_head import DecoderHeadConfig
from bertwright.tasks.heads.head import HeadConfig, LayerName
from bertwright.tasks.heads.kinds import (
    BiLSTMHeadConfig,
    DenseHeadConfig,
    LinearHeadConfig,
    PoolerHeadConfig,
    TransformHeadConfig,
)
from bertwright.tasks.heads.layers import HeadMix, HeadNorm
from bertwright.tasks.heads.pooling import HeadPooling
from bertwright.tasks.heads.task_visibility import can_be_siamese, check_siamese
from bertwright.tasks.heads.text_vectors import TokenVectorHeadConfig, TokenWeightHeadConfig
from bertwright.tasks.outputs import (
    ClassificationOutput,
    ClozeOutput,
    LateInteractionOutput,
    MatchingOutput,
    OutputType,
    SimilarityOutput,
    SparseOutput,
)


class HeadOverrides(Settings):
    """Overrides of the default head."""

    pooling: HeadPooling | None = None
    layers: LayerName | None = None
    mix: HeadMix | None = None
    mix_norm: bool | None = None
    mix_l2: float | None = Field(default=None, ge=0)
    norm: HeadNorm | None = None


TEXT_POOLINGS = [name for name in get_args(HeadPooling) if name not in ("positions", "pair", "all")]

FROZEN_LAYERS = "last-4"
"""Layers that a head reads from a frozen encoder: concatenated, the best features of BERT (Devlin
et al. 2019, table 7)."""


def resolve_head(
    overrides: HeadConfig | HeadOverrides | None,
    recipe: Recipe,
    output_type: OutputType,
    source: FineTunedModel | None = None,
    frozen_inputs: Literal["texts", "pairs"] | None = None,
    has_added_features: bool = False,
) -> HeadConfig:
    """Return the configured head, completed for an output type.

    Defaults come from ``source``, a fine-tuned model to continue from, if its output type has the
    same default head. ``frozen_inputs`` says what a frozen encoder reads; None if it is not frozen.
    With ``has_added_features`` the head reads more than the last layer, as with knowledge adapters.
    """
    if isinstance(overrides, HeadConfig):
        return overrides

    def default_for(output_type: OutputType) -> HeadConfig:
        frozen = None
        if frozen_inputs is not None:
            frozen = _frozen_head(recipe, output_type, has_pairs=frozen_inputs == "pairs")
        return frozen or default_head(recipe, output_type, has_added_features)

    config = default_for(output_type)
    if source is not None and default_for(source.task.output_type) == config:
        source_config = source.task_model.head_config
        if check_head(source_config, output_type, recipe.output) is None:
            config = source_config
    if overrides is None:
        return config
    return config.copy_with("head", **overrides.model_dump(exclude_none=True))


def frozen_input_kind(
    adaptation: AdaptationConfig, tasks: Sequence[tuple[OutputType, Examples]]
) -> Literal["texts", "pairs"] | None:
    """Return what a frozen encoder reads in these tasks: texts or pairs; None if not frozen."""
    if not adaptation.has_frozen_encoder:
        return None
    are_pairs = (has_pairs(examples) for _, examples in tasks)
    allows_siamese = all(check_siamese("concat", output_type) is None for output_type, _ in tasks)
    return "pairs" if allows_siamese and all(are_pairs) else "texts"


def has_pairs(examples: Examples) -> bool:
    """Return whether the examples are pairs of texts."""
    return all(isinstance(e, Example) and e.pair is not None for e in islice(examples, 1))


def _frozen_head(recipe: Recipe, output_type: OutputType, has_pairs: bool) -> HeadConfig | None:
    """Return the head on features of a frozen encoder; None if the default head fits.

    It is linear and reads the mean over the text. For pairs it is siamese, since a pretrained
    encoder has not learned to compare two texts in one sequence.
    """
    if isinstance(output_type, ClozeOutput | MatchingOutput) or output_type.level == "text":
        return None
    if output_type.level == "token":
        # Question answering reads all tokens of a text: four layers of them take too much memory.
        return LinearHeadConfig(
            pooling="positions", layers=FROZEN_LAYERS if output_type.has_labels else "last"
        )
    if has_pairs and can_be_siamese(recipe):
        return LinearHeadConfig(pooling="siamese", layers=FROZEN_LAYERS)
    causal = _reads_one_way(recipe) and not is_split_by_direction(recipe.encoder.visibility)
    return LinearHeadConfig(pooling="last" if causal else "mean", layers=FROZEN_LAYERS)


def default_head(
    recipe: Recipe, output_type: OutputType, has_added_features: bool = False
) -> HeadConfig:
    """Return the usual fine-tuning head for the family of a recipe.

    Causal encoders are read at the last position, recurrent ones that read both ways and static
    word vectors as a mean.
    Similarity uses the recipe's text vectors. Encoders pretrained on pairs have a pooler,
    discriminators a GELU head. Pre-norm encoders apply the transform of their language-model head
    to the mean, since they have not learned to gather a text in the first position; with added
    features, which the transform cannot read, a new dense layer.
    """
    if output_type.level == "text":
        return DecoderHeadConfig()
    if (text_head := _text_vector_head(output_type)) is not None:
        return text_head
    by_halves = is_split_by_direction(recipe.encoder.visibility)
    causal = _reads_one_way(recipe)
    start_token: HeadPooling = "last" if recipe.assembly.ends_with_start_token else "first"
    transforms = recipe.encoder.norm.is_pre_norm and recipe.output.transform and not by_halves
    if output_type.level == "token":
        is_cloze = isinstance(output_type, ClozeOutput)
        uses_transform = recipe.output.transform if is_cloze else transforms
        uses_transform = uses_transform and not has_added_features
        token_head = TransformHeadConfig if uses_transform else LinearHeadConfig
        return token_head(pooling="positions")
    if isinstance(output_type, SimilarityOutput):
        pooled = start_token if recipe.vectors.pooling == "cls" else "mean"
        return LinearHeadConfig(pooling="last" if causal and not by_halves else pooled)
    reads_both_ways = recipe.encoder.mixer.is_recurrent and not causal
    if by_halves or reads_both_ways or not recipe.encoder.is_contextual:
        return LinearHeadConfig(pooling="mean")
    if causal:
        return LinearHeadConfig(pooling="last")
    capabilities = [objective.capabilities for objective in recipe.objectives.values()]
    if recipe.pooler or any(c.relations for c in capabilities):
        return PoolerHeadConfig(pooling=start_token)
    if any(c.detects_replacements for c in capabilities):
        return DenseHeadConfig(pooling=start_token, activation="gelu")
    if transforms:
        text_head = DenseHeadConfig if has_added_features else TransformHeadConfig
        return text_head(pooling="mean")
    return DenseHeadConfig(pooling=start_token)


def _text_vector_head(output_type: OutputType) -> HeadConfig | None:
    """Return the head of a representation for retrieval; None for other output types."""
    match output_type:
        case SparseOutput():
            is_static = output_type.queries == "static"
            return TokenWeightHeadConfig(
                static_queries=is_static, double_log=output_type.double_log
            )
        case LateInteractionOutput():
            return TokenVectorHeadConfig()
        case _:
            return None


def _reads_one_way(recipe: Recipe) -> bool:
    """Return whether only the position that is read last depends on a whole text."""
    visibility = recipe.encoder.visibility
    return is_causal(visibility) or reads_backward(visibility)


def check_head(
    config: HeadConfig, output_type: OutputType, lm_head_config: LMHeadConfig
) -> str | None:
    """Return why a head does not fit an output type; None if it does."""
    if isinstance(config, DecoderHeadConfig) != (output_type.level == "text"):
        kind = output_type.kind_name()
        other = "the decoder" if output_type.level == "text" else "another head"
        return f"head.kind: output type {kind} needs {other}: leave head out"
    if (expected := _text_vector_head(output_type)) is not None:
        kind = output_type.kind_name()
        return None if config == expected else f"head: output type {kind} has its own: leave it out"
    if config.pooling == "all" or isinstance(config, DecoderHeadConfig):
        is_plain = config == DecoderHeadConfig()
        return None if is_plain else "head.pooling: all is for a decoder, which reads all positions"
    is_token_level = output_type.level == "token"
    if isinstance(config, BiLSTMHeadConfig) and not is_token_level:
        return "head.kind: bilstm reads the words of a sentence: choose another for whole texts"
    if (config.pooling == "positions") != is_token_level:
        kind = output_type.kind_name()
        poolings = "positions" if is_token_level else f"one of {', '.join(TEXT_POOLINGS)}"
        return f"head.pooling: output type {kind} needs {poolings}, not {config.pooling}"
    if config.mix_l2 and config.mix != "learned":
        return (
            f"head.mix_l2: head.mix {config.mix} learns no weights: choose learned, or leave it out"
        )
    if config.mix_norm and config.mix == "concat":
        return "head.mix_norm: head.mix concat adds no layers: choose learned, sum or mean"
    if config.norm != "none" and (
        isinstance(output_type, SimilarityOutput | ClozeOutput) or config.pooling == "pair"
    ):
        kind = output_type.kind_name()
        return f"head.norm: the {config.kind_name()} head of output type {kind} has no norm"
    if (config.pooling == "pair") != isinstance(config, AnswerNetworkHeadConfig):
        return "head.pooling: head.kind san needs pair, and no other head does"
    if config.pooling == "pair" and not isinstance(output_type, ClassificationOutput):
        return "head.kind: san predicts one of several classes: choose another head"
    if config.pooling == "siamese" and (problem := check_siamese(config.mix, output_type)):
        return problem
    if isinstance(output_type, SimilarityOutput) and not isinstance(config, LinearHeadConfig):
        return "head.kind: output type similarity compares pooled states: choose plain"
    if isinstance(output_type, ClozeOutput) and isinstance(config, TransformHeadConfig) != bool(
        lm_head_config.transform
    ):
        return "head.kind: output type cloze uses the language-model head: leave head out"
    if isinstance(config, TransformHeadConfig) and not lm_head_config.transform:
        return "head.kind: transform needs a recipe whose output has a transform"
    return None


def check_added_features(config: HeadConfig, output_type: OutputType) -> str | None:
    """Return why a head cannot read features added by an adaptation; None if it can."""
    if isinstance(output_type, MatchingOutput | ClozeOutput):
        return (
            f"adaptation.kind: output type {output_type.kind_name()} reads the encoder alone: "
            f"choose an adaptation without added features"
        )
    if config.mix != "concat":
        return "head.mix: added features are concatenated with the layers: choose concat"
    return None
