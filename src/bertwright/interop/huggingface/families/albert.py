"""ALBERT (Lan et al. 2020): a factorised embedding, and groups of layers with shared parameters."""

import torch

from bertwright.core.errors import UserError
from bertwright.interop.huggingface.families.bert import (
    FIXED_AXES,
    Bert,
)
from bertwright.interop.huggingface.families.config_keys import (
    ConfigKey,
    StockConfig,
    with_defaults,
)
from bertwright.interop.huggingface.families.electra import EMBEDDING_SIZE_KEY
from bertwright.interop.huggingface.head_types import (
    PRETRAINING,
    SEQUENCE_CLASSIFICATION,
    TOKEN_AND_SPAN_HEADS,
    EncoderModel,
    StockTaskHead,
)
from bertwright.interop.huggingface.tensor_names import StateDict
from bertwright.recipes import Recipe

BLOCK, LAYER = "encoder.blocks.#", "encoder.albert_layer_groups.#.albert_layers.0"
BLOCK_PREFIX, UP_PROJECTION = "encoder.blocks.", "encoder.embeddings.up_projection"


class Albert(Bert):
    """BERT with groups of layers; layers that share all parameters are one group.

    If only some parameters are shared, every layer is its own group, with a copy of them.
    """

    model_type = "albert"
    class_name = "Albert"
    recipe_name = "albert"
    objective_head_types = {(True, "sentence-order"): PRETRAINING}
    stock_output_names = {"sentence-order": "sop_logits"}
    base_model_prefix = "albert"
    encoder_table = (
        ("encoder.embeddings.tokens", ("embeddings.word_embeddings",)),
        ("encoder.embeddings.positions.table", ("embeddings.position_embeddings",)),
        ("encoder.embeddings.segments", ("embeddings.token_type_embeddings",)),
        ("encoder.embeddings.sum.norm", ("embeddings.LayerNorm",)),
        ("encoder.embeddings.up_projection", ("encoder.embedding_hidden_mapping_in",)),
        (
            f"{BLOCK}.sublayers.attention.projection",
            (f"{LAYER}.attention.query", f"{LAYER}.attention.key", f"{LAYER}.attention.value"),
        ),
        (f"{BLOCK}.sublayers.attention.output", (f"{LAYER}.attention.dense",)),
        (f"{BLOCK}.norms.attention", (f"{LAYER}.attention.LayerNorm",)),
        (f"{BLOCK}.sublayers.feed_forward.up", (f"{LAYER}.ffn",)),
        (f"{BLOCK}.sublayers.feed_forward.down", (f"{LAYER}.ffn_output",)),
        (f"{BLOCK}.norms.feed_forward", (f"{LAYER}.full_layer_layer_norm",)),
        ("pooler", ("pooler",)),
    )
    head_table = (
        ("output.transform.dense", ("predictions.dense",)),
        ("output.transform.norm", ("predictions.LayerNorm",)),
        ("output.bias", ("predictions.bias",)),
        ("output.table", ("predictions.decoder",)),
        ("heads.sentence-order.classifier", ("sop_classifier.classifier",)),
    )
    task_heads = TOKEN_AND_SPAN_HEADS | {
        SEQUENCE_CLASSIFICATION: StockTaskHead(
            ("pooler", "dense"),
            ("first",),
            (("head.trunk.dense", ("albert.pooler",)), ("head.classifier", ("classifier",))),
        ),
    }
    config_keys = (
        *with_defaults(
            Bert.config_keys,
            hidden_size=4096,
            num_attention_heads=64,
            intermediate_size=16384,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            hidden_act="gelu_new",
        ),
        ConfigKey("sharing", "encoder.depth.sharing", "all"),
        ConfigKey("num_hidden_groups", "encoder.depth.groups", 1),
        EMBEDDING_SIZE_KEY,
    )
    fixed_axes = FIXED_AXES | {"encoder.embeddings.kind": ("factorised",)}

    def normalise_config(self, config: StockConfig) -> StockConfig:
        groups, layers = config.get("num_hidden_groups", 1), config.get("num_hidden_layers", 12)
        if config.get("inner_group_num", 1) != 1:
            raise UserError("inner_group_num is not 1: groups of several layers are not supported")
        if groups == layers > 1:
            return {**config, "sharing": "none", "num_hidden_groups": 1}
        return {**config, "sharing": "all", "num_hidden_groups": groups}

    def extend_config(self, config: StockConfig, recipe: Recipe) -> StockConfig:
        config = super().extend_config(config, recipe)
        shares_all = config.pop("sharing") == "all"
        groups = config["num_hidden_groups"] if shares_all else config["num_hidden_layers"]
        return {**config, "num_hidden_groups": groups, "inner_group_num": 1}

    def export_tensors(self, model: EncoderModel) -> StateDict:
        tensors = super().export_tensors(model)
        depth = model.recipe.encoder.depth
        layers = len(depth.sublayer_orders())
        groups = depth.groups if depth.sharing == "all" else layers
        exported = {n: t for n, t in tensors.items() if not n.startswith(BLOCK_PREFIX)}
        width = model.recipe.encoder.width
        # The stock class always has the projection, even if the table has the encoder's width.
        exported.setdefault(f"{UP_PROJECTION}.weight", torch.eye(width))
        exported.setdefault(f"{UP_PROJECTION}.bias", torch.zeros(width))
        for group in range(groups):
            layer = -(-group * layers // groups)
            for letter, part in (("s", "attention"), ("f", "feed_forward")):
                owner = f"{BLOCK_PREFIX}{depth.owner_block(layer, letter)}."
                for name, tensor in tensors.items():
                    if name.startswith(owner) and name.split(".")[4] == part:
                        exported[name.replace(owner, f"{BLOCK_PREFIX}{group}.", 1)] = tensor.clone()
        return exported

    def import_tensors(self, tensors: StateDict, config: StockConfig) -> StateDict:
        groups, layers = config.get("num_hidden_groups", 1), config.get("num_hidden_layers", 12)
        projection = tensors.get(f"{UP_PROJECTION}.weight")
        if projection is not None and projection.shape[0] == projection.shape[1]:
            is_identity = torch.equal(projection, torch.eye(len(projection)))
            if not is_identity or tensors[f"{UP_PROJECTION}.bias"].any():
                raise UserError("embedding_size equals hidden_size: unsupported projection")
            tensors = {n: t for n, t in tensors.items() if not n.startswith(f"{UP_PROJECTION}.")}
        imported: StateDict = {}
        for name, tensor in tensors.items():
            if name.startswith(BLOCK_PREFIX):
                group, rest = name.removeprefix(BLOCK_PREFIX).split(".", 1)
                name = f"{BLOCK_PREFIX}{-(-int(group) * layers // groups)}.{rest}"
            imported[name] = tensor
        return imported
