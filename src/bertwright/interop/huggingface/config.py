"""Read and validate the config.json of a Hugging Face folder.

Types and ranges are checked before anything is allocated.
"""

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from bertwright.core.config import to_user_error
from bertwright.core.errors import UserError
from bertwright.core.files import parse_json, read_text
from bertwright.interop.huggingface import CONFIG_FILE
from bertwright.interop.huggingface.families.config_keys import StockConfig
from bertwright.interop.huggingface.families.registry import FAMILIES

LayerCount = Annotated[int, Field(ge=1, le=1_024)]
PositiveCount = Annotated[int, Field(ge=1, le=1 << 24)]
TokenIdValue = Annotated[int, Field(ge=-1, le=1 << 24)]
ShortString = Annotated[str, Field(max_length=1_000)]

_COMMON_KEY_TYPES: dict[str, Any] = {
    "architectures": list[ShortString],
    "attention_dilation": PositiveCount | list[PositiveCount],
    "attention_type": ShortString,
    "attention_window": PositiveCount | list[PositiveCount],
    "block_size": PositiveCount,
    "classifier_activation": bool | ShortString,
    "classifier_pooling": Literal["cls", "mean"],
    "decoder_start_token_id": TokenIdValue,
    "global_attn_every_n_layers": LayerCount,
    "id2label": dict[Annotated[str, Field(pattern=r"^\d{1,7}$")], str | int | float | bool],
    "initializer_range": float,
    "inner_group_num": LayerCount,
    "lang2id": dict[str, TokenIdValue],
    "layer_types": list[ShortString],
    "local_attention": PositiveCount,
    "max_position_embeddings": PositiveCount,
    "model_type": ShortString,
    "n_ctx": PositiveCount,
    "n_inner": PositiveCount,
    "n_langs": Annotated[int, Field(ge=1, le=65_536)],
    "num_decoder_layers": LayerCount,
    "num_hidden_groups": LayerCount,
    "num_random_blocks": PositiveCount,
    "pad_token_id": TokenIdValue,
    "bos_token_id": TokenIdValue | list[TokenIdValue],
    "eos_token_id": TokenIdValue | list[TokenIdValue],
    "problem_type": ShortString,
    "rope_parameters": dict[str, Any],
    "rope_scaling": dict[str, Any],
    "rope_theta": Annotated[float, Field(gt=0)],
    "type_vocab_size": Annotated[int, Field(ge=0, le=1_024)],
    "use_lang_emb": bool,
    "vocab_size": PositiveCount,
}
"""Config keys that no family lists, or that several list with different defaults."""

_TYPE_BY_DEFAULT: dict[type, Any] = {bool: bool, int: PositiveCount, float: float, str: ShortString}


def read_config(folder: Path) -> StockConfig:
    """Return the keys of config.json that are not null.

    Raises UserError if it is missing or not JSON, and for a key of the wrong type or out of range.
    """
    file = folder / CONFIG_FILE
    if not file.is_file():
        raise UserError(
            f"{folder} is no Hugging Face folder: it has no {CONFIG_FILE} (fetch one with "
            f"'hf download NAME --local-dir {folder}')"
        )
    content = parse_json(read_text(file), str(file), "copy it again")
    if not isinstance(content, dict):
        raise UserError(f"{file} holds no JSON object: copy it again")
    model_type = content.get("model_type")
    is_known = isinstance(model_type, str) and model_type in FAMILIES
    schema = _config_schema(model_type if is_known else None)
    try:
        schema.model_validate(content)
    except ValidationError as error:
        raise to_user_error(error, str(file)) from error
    config = {k: v for k, v in content.items() if v is not None or k not in schema.model_fields}
    if "id2label" in config:
        labels = cast(dict[str, Any], config["id2label"])
        config["id2label"] = {index: str(label) for index, label in labels.items()}
    return config


_DERIVED_KEYS = ("languages", "sliding_window", "offset", "sharing")
"""Config keys that families derive from other keys."""


@cache
def _config_schema(model_type: str | None) -> type[BaseModel]:
    """Return the schema of a family's configuration; for None, a schema of the common keys."""
    types: dict[str, Any] = {}
    family = None if model_type is None else FAMILIES[model_type]
    for key in () if family is None else (*family.config_keys, family.tie_key):
        kind = _TYPE_BY_DEFAULT.get(type(key.default))
        if kind is not None and key.stock_key not in _DERIVED_KEYS:
            is_depth = kind is PositiveCount and "layer" in key.stock_key
            types[key.stock_key] = LayerCount if is_depth else kind
    fields: dict[str, Any] = {
        name: (kind | None, None) for name, kind in (types | _COMMON_KEY_TYPES).items()
    }
    return create_model(
        "StockConfigSchema",
        __config__=ConfigDict(extra="allow", strict=True, allow_inf_nan=False),
        **fields,
    )
