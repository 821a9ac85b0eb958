"""The encoders of llama.cpp: their axes, their tensors by our names, and their metadata.

Each is one point on our axes. The gelu of llama.cpp is the tanh approximation, from a table of half
precision; a cosine of 0.999 to our vectors allows for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bertwright.interop.huggingface.families.config_keys import (
    COMMON_AXES,
    UNSUPPORTED_AXES,
    without,
)
from bertwright.interop.huggingface.families.family import expand_recipe, format_value, get_path
from bertwright.interop.huggingface.tensor_names import TensorNameTable
from bertwright.modules.attention.mask.windows import SlidingWindowConfig
from bertwright.recipes import Recipe

BLOCK, LAYER = "encoder.blocks.#", "blk.#"

EMBEDDINGS: TensorNameTable = (
    ("encoder.embeddings.tokens", ("token_embd",)),
    ("encoder.embeddings.sum.norm", ("token_embd_norm",)),
)

ATTENTION: TensorNameTable = (
    (f"{BLOCK}.sublayers.attention.projection", (f"{LAYER}.attn_qkv",)),
    (f"{BLOCK}.sublayers.attention.output", (f"{LAYER}.attn_output",)),
)

FEED_FORWARD: TensorNameTable = (
    (f"{BLOCK}.sublayers.feed_forward.up", (f"{LAYER}.ffn_up",)),
    (f"{BLOCK}.sublayers.feed_forward.down", (f"{LAYER}.ffn_down",)),
)

POST_NORM: TensorNameTable = (
    (f"{BLOCK}.norms.attention", (f"{LAYER}.attn_output_norm",)),
    (f"{BLOCK}.norms.feed_forward", (f"{LAYER}.layer_output_norm",)),
)

SEGMENTS: TensorNameTable = (("encoder.embeddings.segments", ("token_types",)),)

AXES = COMMON_AXES | without(
    {path: choices for path, choices in UNSUPPORTED_AXES.items() if path.startswith("encoder.")},
    "encoder.sliding_window",
)
"""The axes of all encoders of llama.cpp."""


@dataclass(frozen=True)
class LlamaArchitecture:
    """An encoder of llama.cpp.

    Attributes:
        name: its ``general.architecture``.
        axes: for each axis of a recipe, the values that it can have.
        table: our tensors, and theirs without suffix.
        head_kinds: the task heads that it computes.
        head_table: the tensors of these; names that begin with another's come before it.
    """

    name: str
    axes: Mapping[str, tuple[Any, ...]]
    table: TensorNameTable
    head_kinds: tuple[str, ...] = ()
    head_table: TensorNameTable = ()

    def mismatches(self, recipe: Recipe) -> list[str]:
        """Return why llama.cpp does not compute an encoder; empty if it does."""
        data = expand_recipe(recipe)
        return [
            f"{path} is {format_value(value)} (llama.cpp's {self.name}: {format_value(choices[0])})"
            for path, choices in self.axes.items()
            if (value := get_path(data, path)) not in choices
            and not (value is None and path in UNSUPPORTED_AXES)
        ]

    def metadata(self, recipe: Recipe, max_length: int) -> dict[str, Any]:
        """Return the keys that describe an encoder, without the name of the architecture."""
        data, encoder = expand_recipe(recipe)["encoder"], recipe.encoder
        metadata = {
            "context_length": max_length,
            "embedding_length": encoder.width,
            "block_count": data["depth"]["layers"],
            "feed_forward_length": data["feed_forward"]["width"],
            "attention.head_count": data["mixer"]["heads"],
            "attention.layer_norm_epsilon": float(data["norm"]["epsilon"]),
            "attention.causal": False,
        }
        if encoder.positions.is_rotary:
            metadata["rope.freq_base"] = float(data["positions"]["base"])
        if isinstance(window := encoder.sliding_window, SlidingWindowConfig):
            base = data["positions"]["base"] if window.base is None else window.base
            metadata |= {
                "attention.sliding_window": 2 * window.window,
                "attention.sliding_window_pattern": window.every,
                "rope.freq_base_swa": float(base),
            }
        if data["feed_forward"]["kind"] == "swiglu":
            metadata["hidden_activation"] = "silu"
        return metadata


BERT = LlamaArchitecture(
    "bert",
    AXES
    | {
        "encoder.sliding_window": (None,),
        "encoder.feed_forward.kind": ("gelu", "gelu-tanh"),
    },
    EMBEDDINGS
    + SEGMENTS
    + (("encoder.embeddings.positions.table", ("position_embd",)),)
    + ATTENTION
    + FEED_FORWARD
    + POST_NORM,
    ("pooler", "dense", "plain"),
    (("head.classifier", ("cls.output",)), ("head.trunk.dense", ("cls",))),
)
"""BERT, RoBERTa, DistilBERT, and others of this body."""

NOMIC_BERT = LlamaArchitecture(
    "nomic-bert",
    AXES
    | {
        "encoder.sliding_window": (None,),
        "encoder.positions.kind": ("rotary",),
        "encoder.mixer.bias": (False, True),
        "encoder.feed_forward.kind": ("swiglu",),
        "encoder.feed_forward.bias": (False,),
    },
    EMBEDDINGS
    + SEGMENTS
    + ATTENTION
    + (
        (f"{BLOCK}.sublayers.feed_forward.up", (f"{LAYER}.ffn_gate", f"{LAYER}.ffn_up")),
        (f"{BLOCK}.sublayers.feed_forward.down", (f"{LAYER}.ffn_down",)),
    )
    + POST_NORM,
)
"""A post-norm body with rotary positions and gated feed-forwards (Nussbaum et al. 2024)."""

MODERN_BERT = LlamaArchitecture(
    "modern-bert",
    AXES
    | {
        "encoder.embeddings.segments": (0,),
        "encoder.positions.kind": ("rotary",),
        "encoder.mixer.bias": (False,),
        "encoder.feed_forward.kind": ("geglu", "geglu-tanh", "swiglu"),
        "encoder.feed_forward.bias": (False,),
        "encoder.norm.bias": (False,),
        "encoder.norm.placement": ("pre",),
        "encoder.norm.skip_first": (True,),
    },
    EMBEDDINGS
    + ATTENTION
    + FEED_FORWARD
    + (
        (f"{BLOCK}.norms.attention", (f"{LAYER}.attn_norm",)),
        (f"{BLOCK}.norms.feed_forward", (f"{LAYER}.ffn_norm",)),
        ("encoder.norm", ("output_norm",)),
    ),
    ("transform", "plain"),
    (
        ("head.classifier", ("cls.output",)),
        ("head.trunk.norm", ("cls.norm",)),
        ("head.trunk.dense", ("cls",)),
    ),
)
"""ModernBERT (Warner et al. 2024)."""

ARCHITECTURES = {a.name: a for a in (BERT, NOMIC_BERT, MODERN_BERT)}


def nearest_architecture(recipe: Recipe) -> LlamaArchitecture:
    """Return the architecture that computes an encoder, or that differs in the fewest axes."""
    return min(ARCHITECTURES.values(), key=lambda a: len(a.mismatches(recipe)))
