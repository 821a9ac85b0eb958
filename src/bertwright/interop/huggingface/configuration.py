"""config.json of a stock folder: the type and the range of every key that is read.

A file is checked before anything is built of it, so that no size that it states is allocated.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from bertwright.axes import explain
from bertwright.errors import UserError
from bertwright.files import parse_json, read_text
from bertwright.interop.huggingface.families import FAMILIES
from bertwright.interop.huggingface.family import Config

CONFIG = "config.json"

Layers = Annotated[int, Field(ge=1, le=1_024)]
Count = Annotated[int, Field(ge=1, le=1 << 24)]
Number = Annotated[int, Field(ge=-1, le=1 << 24)]
Text = Annotated[str, Field(max_length=1_000)]

_WITHOUT_KEY: dict[str, Any] = {
    "architectures": list[Text],
    "attention_dilation": Count | list[Count],
    "attention_type": Text,
    "attention_window": Count | list[Count],
    "block_size": Count,
    "classifier_activation": bool | Text,
    "classifier_pooling": Literal["cls", "mean"],
    "decoder_start_token_id": Number,
    "global_attn_every_n_layers": Layers,
    "id2label": dict[Annotated[str, Field(pattern=r"^\d{1,7}$")], str | int | float | bool],
    "initializer_range": float,
    "inner_group_num": Layers,
    "lang2id": dict[str, Number],
    "layer_types": list[Text],
    "local_attention": Count,
    "model_type": Text,
    "n_ctx": Count,
    "n_inner": Count,
    "n_langs": Annotated[int, Field(ge=1, le=65_536)],
    "num_decoder_layers": Layers,
    "num_hidden_groups": Layers,
    "num_random_blocks": Count,
    "pad_token_id": Number,
    "bos_token_id": Number | list[Number],
    "eos_token_id": Number | list[Number],
    "problem_type": Text,
    "rope_parameters": dict[str, Any],
    "rope_scaling": dict[str, Any],
    "rope_theta": Annotated[float, Field(gt=0)],
    "use_lang_emb": bool,
    "vocab_size": Count,
}
"""Keys that are read beside those of a family."""

_OF_DEFAULTS: dict[type, Any] = {bool: bool, int: Count, float: float, str: Text}


def read_config(folder: Path) -> Config:
    """Return what config.json states; a key that is null is not stated.

    Errors: UserError where there is none, where it is not JSON, and for a key of a wrong type or
    out of range.
    """
    file = folder / CONFIG
    if not file.is_file():
        raise UserError(
            f"{folder} is no Hugging Face folder: it has no {CONFIG} (fetch one with 'hf download "
            f"NAME --local-dir {folder}')"
        )
    stated = parse_json(read_text(file), str(file), "copy it again")
    if not isinstance(stated, dict):
        raise UserError(f"{file} holds no JSON object: copy it again")
    try:
        _STATED.model_validate(stated)
    except ValidationError as error:
        raise explain(error, str(file)) from error
    known = {k: v for k, v in stated.items() if v is not None or k not in _STATED.model_fields}
    if "id2label" in known:
        labels = cast(dict[str, Any], known["id2label"])
        known["id2label"] = {number: str(label) for number, label in labels.items()}
    return known


def _types() -> dict[str, Any]:
    types: dict[str, Any] = {}
    for family in FAMILIES.values():
        for key in (*family.keys, family.tie):
            kind = _OF_DEFAULTS.get(type(key.default))
            if kind is not None and key.theirs not in _INTERNAL:
                types[key.theirs] = Layers if kind is Count and "layer" in key.theirs else kind
    types["type_vocab_size"] = Annotated[int, Field(ge=0, le=1_024)]
    return types | _WITHOUT_KEY


_INTERNAL = ("languages", "local", "offset", "sharing")
"""Keys that families make of others."""

_FIELDS: dict[str, Any] = {name: (kind | None, None) for name, kind in _types().items()}
_STATED: type[BaseModel] = create_model(
    "Stated",
    __config__=ConfigDict(extra="allow", strict=True, allow_inf_nan=False),
    **_FIELDS,
)
