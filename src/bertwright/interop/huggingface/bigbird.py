"""BigBird (Zaheer et al. 2020): BERT that sees windows, ends and random blocks of long rows.

The stock class draws its random blocks only while it is trained, for every head apart; otherwise
it puts the first block in their place. So it computes what we do on rows of at most (5 + 2 r) B
places (r random blocks of B places), where it sees everything; on longer ones it is near.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from bertwright.encoder.visibility import (
    Bidirectional,
    Either,
    Global,
    RandomBlocks,
    SameDocument,
    Short,
    Visibility,
    Window,
)
from bertwright.errors import UserError
from bertwright.interop.huggingface.bert import ACTIVATIONS, AXES, ENCODER, KEYS, Bert
from bertwright.interop.huggingface.family import Config, Key
from bertwright.interop.huggingface.purposes import (
    BARE,
    MASKED,
    OVER_TEXTS,
    POOLER,
    TEXTS,
    TRAINED,
    WORDS,
    Classifier,
    Net,
)
from bertwright.interop.huggingface.renaming import Table, Tensors
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials

CHANGED = ("hidden_act", "max_position_embeddings")


def seen(block: int, number: int) -> Either:
    """What the stock class sees with so many random blocks of so many places."""
    return Either(
        rules=(
            Window(size=1, block=block),
            Global(first=1, last=1, block=block),
            RandomBlocks(number=number, block=block),
            Short(length=(5 + 2 * number) * block),
        )
    )


class BigBird(Bert):
    """As BERT, with a pooler in every stock class: one that a model has not is written as zeros."""

    model_type: ClassVar[str] = "big_bird"
    class_name: ClassVar[str] = "BigBird"
    recipe: ClassVar[str] = "bigbird"
    purposes: ClassVar[Mapping[tuple[bool, str | None], str]] = {
        (True, "next-sentence"): TRAINED,
        (True, None): MASKED,
        (False, None): BARE,
    }
    encoder_table: ClassVar[Table] = (
        *(row for row in ENCODER if row[0] != POOLER),
        (POOLER, (POOLER,)),
    )
    classifiers: ClassVar[dict[str, Classifier]] = {
        TEXTS: Classifier(("dense",), ("first",), OVER_TEXTS, "encoder"),
        WORDS: Bert.classifiers[WORDS],
    }
    longest: ClassVar[int] = 4096
    keys: ClassVar[tuple[Key, ...]] = (
        *(key for key in KEYS if key.theirs not in CHANGED),
        Key("hidden_act", "encoder.feed_forward.kind", "gelu_new", ACTIVATIONS),
        Key("hidden_act", "output.activation", "gelu_new", ACTIVATIONS),
        Key("max_position_embeddings", "encoder.positions.size", 4096),
        Key("rescale_embeddings", "encoder.embeddings.scaled", False),
    )
    axes: ClassVar[dict[str, tuple[Any, ...]]] = {
        **AXES,
        "encoder.visibility.kind": ("or", "bidirectional", "document"),
    }
    required: ClassVar[dict[str, Any]] = {
        "use_bias": True,
        "is_decoder": False,
        "add_cross_attention": False,
    }

    def settings(self, config: Config) -> dict[str, Any]:
        settings = super().settings(config)
        kind = config.get("attention_type", "block_sparse")
        if kind not in ("block_sparse", "original_full"):
            raise UserError(
                f"attention_type is {kind!r}: block_sparse or original_full can be read"
            )
        rule: Visibility = Bidirectional()
        if kind == "block_sparse":
            rule = seen(config.get("block_size", 64), config.get("num_random_blocks", 3))
        settings["encoder"]["visibility"] = rule.model_dump(mode="json")
        return settings

    def finished(self, config: Config, recipe: Recipe, specials: Specials) -> Config:
        config = super().finished(config, recipe, specials)
        tokens = {
            "bos_token_id": specials.start,
            "eos_token_id": specials.end,
            "sep_token_id": specials.end,
        }
        drawn = _drawn(recipe.encoder.visibility)
        if drawn is None:
            return {**config, **tokens, "attention_type": "original_full"}
        return {
            **config,
            **tokens,
            "attention_type": "block_sparse",
            "block_size": drawn.block,
            "num_random_blocks": drawn.number,
        }

    def further_reasons(self, recipe: Recipe, specials: Specials) -> list[str]:
        rule = recipe.encoder.visibility
        drawn = _drawn(rule)
        if drawn is None and isinstance(rule, Bidirectional | SameDocument):
            return []
        if drawn is not None and set(rule.rules) == set(seen(drawn.block, drawn.number).rules):  # type: ignore[attr-defined]
            return []
        return ["encoder.visibility is another rule than that of the recipe bigbird"]

    def longest_alike(self, recipe: Recipe) -> int | None:
        rule = recipe.encoder.visibility
        short = [own for own in getattr(rule, "rules", ()) if isinstance(own, Short)]
        return short[0].length if short else None

    def completed(self, net: Net) -> Tensors:
        tensors = super().completed(net)
        if not any(name.endswith(f"{POOLER}.weight") for name in tensors):
            width = net.recipe.encoder.width
            tensors[f"{POOLER}.weight"] = torch.zeros(width, width)
            tensors[f"{POOLER}.bias"] = torch.zeros(width)
        return tensors


def _drawn(rule: Visibility) -> RandomBlocks | None:
    """The random blocks of a rule."""
    rules = rule.rules if isinstance(rule, Either) else ()
    return next((own for own in rules if isinstance(own, RandomBlocks)), None)
