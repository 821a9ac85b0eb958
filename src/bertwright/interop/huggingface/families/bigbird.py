"""BigBird (Zaheer et al. 2020): BERT with window, global and random block attention.

The stock class samples random blocks only in training, separately per head; otherwise it uses the
first block. It is equivalent to our model up to (5 + 2 r) B tokens, for r random blocks of size B,
where attention is full; beyond that it is an approximation.
"""

from typing import Any

import torch

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.interop.huggingface.families.bert import (
    ENCODER_TABLE,
    FIXED_AXES,
    Bert,
)
from bertwright.interop.huggingface.families.config_keys import (
    BOS_EOS_PAD,
    ConfigKey,
    StockConfig,
    with_defaults,
)
from bertwright.interop.huggingface.head_types import (
    CLASSIFICATION_HEAD_TABLE,
    POOLER,
    PRETRAINING,
    SEQUENCE_CLASSIFICATION,
    TOKEN_HEAD,
    EncoderModel,
    StockTaskHead,
)
from bertwright.interop.huggingface.tensor_names import StateDict
from bertwright.modules.attention.mask import (
    BidirectionalVisibility,
    GlobalVisibility,
    OrVisibility,
    RandomBlocksVisibility,
    SameDocumentVisibility,
    ShortTextVisibility,
    Visibility,
    WindowVisibility,
)
from bertwright.recipes import Recipe

MAX_DRAWS = 16
"""Number of heads with different random blocks; the published models have 12 and 16 heads."""


def block_sparse_visibility(
    block_size: int, num_random_blocks: int, draws: int = MAX_DRAWS
) -> OrVisibility:
    """Return the stock class's block-sparse attention mask."""
    return OrVisibility(
        rules=(
            WindowVisibility(size=1, block=block_size),
            GlobalVisibility(first=1, last=1, block=block_size),
            RandomBlocksVisibility(number=num_random_blocks, block=block_size, draws=draws),
            ShortTextVisibility(length=(5 + 2 * num_random_blocks) * block_size),
        )
    )


class BigBird(Bert):
    """BERT with a pooler in every stock class; a missing pooler is exported as zeros."""

    model_type = "big_bird"
    class_name = "BigBird"
    recipe_name = "bigbird"
    objective_head_types = {(True, "next-sentence"): PRETRAINING}
    encoder_table = (*(row for row in ENCODER_TABLE if row[0] != POOLER), (POOLER, (POOLER,)))
    task_heads = TOKEN_HEAD | {
        SEQUENCE_CLASSIFICATION: StockTaskHead(
            ("dense",), ("first",), CLASSIFICATION_HEAD_TABLE, "encoder"
        ),
    }
    default_max_length = 4096
    token_id_keys = BOS_EOS_PAD | {"sep_token_id": "end"}
    config_keys = (
        *with_defaults(Bert.config_keys, hidden_act="gelu_new", max_position_embeddings=4096),
        ConfigKey("rescale_embeddings", "encoder.embeddings.scaled", False),
    )
    fixed_axes = FIXED_AXES | {"encoder.visibility.kind": ("or", "bidirectional", "document")}
    required_config = {
        "use_bias": True,
        "is_decoder": False,
        "add_cross_attention": False,
    }

    def recipe_settings(self, config: StockConfig) -> dict[str, Any]:
        settings = super().recipe_settings(config)
        kind = config.get("attention_type", "block_sparse")
        if kind not in ("block_sparse", "original_full"):
            raise UserError(
                f"attention_type is {kind!r}: block_sparse and original_full are supported"
            )
        visibility: Visibility = BidirectionalVisibility()
        if kind == "block_sparse":
            visibility = block_sparse_visibility(
                config.get("block_size", 64), config.get("num_random_blocks", 3)
            )
        settings["encoder"]["visibility"] = visibility.model_dump(mode="json")
        return settings

    def extend_config(self, config: StockConfig, recipe: Recipe) -> StockConfig:
        config = super().extend_config(config, recipe)
        random_blocks = _random_blocks(recipe.encoder.visibility)
        if random_blocks is None:
            return {**config, "attention_type": "original_full"}
        return {
            **config,
            "attention_type": "block_sparse",
            "block_size": random_blocks.block,
            "num_random_blocks": random_blocks.number,
        }

    def extra_mismatches(self, recipe: Recipe, special_tokens: SpecialTokens) -> list[str]:
        visibility = recipe.encoder.visibility
        random_blocks = _random_blocks(visibility)
        if random_blocks is None and isinstance(
            visibility, BidirectionalVisibility | SameDocumentVisibility
        ):
            return []
        if random_blocks is not None:
            any_layers = random_blocks.model_copy(update={"layers": None})
            rules = [
                any_layers if rule == random_blocks else rule
                for rule in getattr(visibility, "rules", ())
            ]
            expected = block_sparse_visibility(
                random_blocks.block, random_blocks.number, random_blocks.draws
            ).rules
            if all(rule in rules for rule in expected) and all(rule in expected for rule in rules):
                return []
        return ["encoder.visibility differs from the recipe bigbird"]

    def max_equivalent_length(self, recipe: Recipe) -> int | None:
        visibility = recipe.encoder.visibility
        rules = getattr(visibility, "rules", ())
        return next((rule.length for rule in rules if isinstance(rule, ShortTextVisibility)), None)

    def export_tensors(self, model: EncoderModel) -> StateDict:
        tensors = super().export_tensors(model)
        if not any(name.endswith(f"{POOLER}.weight") for name in tensors):
            width = model.recipe.encoder.width
            tensors[f"{POOLER}.weight"] = torch.zeros(width, width)
            tensors[f"{POOLER}.bias"] = torch.zeros(width)
        return tensors


def _random_blocks(visibility: Visibility) -> RandomBlocksVisibility | None:
    """Return the random blocks of an attention mask; None if it has none."""
    rules = visibility.rules if isinstance(visibility, OrVisibility) else ()
    return next((rule for rule in rules if isinstance(rule, RandomBlocksVisibility)), None)
