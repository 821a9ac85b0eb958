"""Embedding settings of a sentence-transformers folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError
from torch import Tensor

from bertwright.core.config import to_user_error
from bertwright.core.errors import UserError
from bertwright.interop.huggingface import CONFIG_FILE
from bertwright.interop.huggingface.tokenizer.settings import (
    NO_MAX_LENGTH,
    read_json_file,
    read_model_max_length,
)
from bertwright.interop.huggingface.weights import WEIGHTS_FILE
from bertwright.models.saving import read_tensors
from bertwright.modules.vector_projection import (
    Activation,
    VectorProjectionConfig,
)
from bertwright.recipes import Pooling, SentenceVectorSettings

MODULES_FILE = "modules.json"

TRANSFORMER_CONFIG_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Files with maximum length and lowercasing: the first is current, the others are older."""

SUPPORTED_MODULES = ("Transformer", "Pooling", "Dense", "Normalize")
"""Modules that ``embed`` can reproduce, in order."""

MODEL_CONFIG_FILE = "config_sentence_transformers.json"
"""File with prompts, truncation and similarity function."""

CROSS_ENCODER = "CrossEncoder"
"""Model type of classifiers that score pairs of texts."""

EXPORTED_KEYS = ("prompts", "default_prompt_name", "truncate_dim", "similarity_fn_name")
"""Keys of that file that an export writes."""

SENTENCE_EMBEDDING = "sentence_embedding"
"""Name of the feature that holds the embedding of a text."""

DENSE_ACTIVATIONS: dict[str, Activation] = {
    "torch.nn.modules.linear.Identity": "identity",
    "torch.nn.modules.activation.Tanh": "tanh",
}
"""Our names of activation functions after a dense layer, by their classes."""

DEFAULT_DENSE_ACTIVATION = "torch.nn.modules.activation.Tanh"

START_TOKEN_POOLINGS = {False: "cls", True: "lasttoken"}
"""The pooling by the start token, by whether it is the last token of a text."""

LEGACY_POOLING_KEYS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Keys before sentence-transformers 6, which has a single key for the pooling."""


def read_embedding_settings(
    folder: Path,
    config: Mapping[str, Any],
    lowercase: bool,
    ends_with_start_token: bool = False,
) -> SentenceVectorSettings:
    """Return the embedding settings of a folder; the defaults if it has no modules.json.

    ``config`` is the stock class's configuration; ``lowercase`` tells whether the tokenizer
    lowercases, and ``ends_with_start_token`` whether [CLS] is the last token. Raises UserError for
    embeddings that ``embed`` cannot compute.
    """
    if not (folder / MODULES_FILE).is_file():
        return SentenceVectorSettings()
    module_list = read_json_file(folder, MODULES_FILE, list)
    if not all(isinstance(module, dict) and "type" in module for module in module_list):
        raise UserError(f"{folder / MODULES_FILE} holds no list of modules: copy it again")
    typed_paths = [(str(m["type"]).rpartition(".")[2], str(m.get("path", ""))) for m in module_list]
    modules, order = dict(typed_paths), [kind for kind, _ in typed_paths]
    if unsupported := [kind for kind in order if kind not in SUPPORTED_MODULES]:
        raise _unsupported_error(folder, f"has the module {unsupported[0]}")
    if order != [kind for kind in SUPPORTED_MODULES if kind in modules]:
        raise _unsupported_error(folder, f"has the modules {', '.join(order)} in this order")
    normalise_config = read_json_file(
        folder, f"{modules.get('Normalize', '')}/config.json".lstrip("/")
    )
    if normalise_config.get("module_input_name", SENTENCE_EMBEDDING) != SENTENCE_EMBEDDING:
        raise _unsupported_error(folder, "normalises token embeddings")
    settings = next(
        filter(None, (read_json_file(folder, name) for name in TRANSFORMER_CONFIG_FILES)), {}
    )
    if settings.get("do_lower_case") and not lowercase:
        raise _unsupported_error(folder, "lowercases texts before its tokenizer")
    pooling_config = read_json_file(folder, f"{modules.get('Pooling', '')}/config.json".lstrip("/"))
    model_config = {
        key: value
        for key, value in read_json_file(folder, MODEL_CONFIG_FILE).items()
        if key in EXPORTED_KEYS
    }
    prompts = _nonempty_prompts(model_config.get("prompts"))
    if _has_prompts(prompts) and not pooling_config.get("include_prompt", True):
        raise _unsupported_error(folder, "pools without its prompts")
    try:
        return SentenceVectorSettings(
            pooling=_read_pooling(folder, pooling_config, ends_with_start_token),
            projection=_read_projection(folder, modules.get("Dense")),
            longest=_read_max_length(folder, config, settings.get("max_seq_length")),
            normalise="Normalize" in modules,
            **{**model_config, "prompts": prompts},
        )
    except ValidationError as error:
        raise to_user_error(error, str(folder / MODEL_CONFIG_FILE)) from None


def read_projection_weights(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of the dense layer of a folder, if any, by their names in it.

    Raises UserError for a missing or damaged file.
    """
    if not (folder / MODULES_FILE).is_file():
        return {}
    modules = read_json_file(folder, MODULES_FILE, list)
    paths = [str(m.get("path", "")) for m in modules if str(m["type"]).endswith(".Dense")]
    return {
        name: tensor.float()
        for path in paths
        for name, tensor in read_tensors(folder / path / WEIGHTS_FILE).items()
    }


def _read_projection(folder: Path, path: str | None) -> VectorProjectionConfig | None:
    """Return the config of the dense layer in a folder; None for no layer."""
    if path is None:
        return None
    config = read_json_file(folder, f"{path}/{CONFIG_FILE}")
    if config.get("use_residual"):
        raise _unsupported_error(folder, "adds vectors to their projection")
    if {config.get(f"module_{end}_name") for end in ("input", "output")} - {
        None,
        SENTENCE_EMBEDDING,
    }:
        raise _unsupported_error(folder, "projects token embeddings")
    class_name = config.get("activation_function") or DEFAULT_DENSE_ACTIVATION
    activation = DENSE_ACTIVATIONS.get(class_name)
    if activation is None:
        raise _unsupported_error(folder, f"projects vectors with {class_name}")
    try:
        return VectorProjectionConfig(
            width=config.get("out_features"), bias=config.get("bias", True), activation=activation
        )
    except ValidationError as error:
        raise to_user_error(error, str(folder / path / CONFIG_FILE)) from None


def _nonempty_prompts(prompts: Any) -> Any:
    """Return the prompts without those that are null."""
    if not isinstance(prompts, Mapping):
        return {} if prompts is None else prompts
    by_name = cast(Mapping[str, Any], prompts)
    return {name: prompt for name, prompt in by_name.items() if prompt is not None}


def _has_prompts(prompts: Any) -> bool:
    """Return whether a text has something before it by any of the prompts."""
    return isinstance(prompts, Mapping) and any(cast(Mapping[str, Any], prompts).values())


def _read_pooling(
    folder: Path, pooling_config: Mapping[str, Any], ends_with_start_token: bool
) -> Pooling:
    legacy_keys = [
        key for key, is_set in pooling_config.items() if key.startswith("pooling_mode_") and is_set
    ]
    stated = (
        pooling_config.get("pooling_mode")
        or [LEGACY_POOLING_KEYS.get(key, key) for key in legacy_keys]
        or "mean"
    )
    names: list[str] = [stated] if isinstance(stated, str) else stated
    start_token_pooling = START_TOKEN_POOLINGS[ends_with_start_token]
    if names == ["mean"]:
        return "mean"
    if names == [start_token_pooling]:
        return "cls"
    if names == ["cls"]:
        raise _unsupported_error(folder, "pools by cls, the first token, which here is a word")
    raise _unsupported_error(folder, f"pools by {' and '.join(names)}")


def _read_max_length(
    folder: Path, config: Mapping[str, Any], max_seq_length: int | None
) -> int | None:
    """Return the stated maximum length; else the smaller of the tokenizer's and the model's."""
    limits = (
        [read_model_max_length(folder), config.get("max_position_embeddings")]
        if max_seq_length is None
        else [max_seq_length]
    )
    return min(
        (limit for limit in limits if limit is not None and 0 < limit < NO_MAX_LENGTH), default=None
    )


def _unsupported_error(folder: Path, reason: str) -> UserError:
    return UserError(
        f"{folder} {reason}, and bertwright's vectors are the mean or cls of hidden states, "
        f"with at most one dense layer: remove {MODULES_FILE} to import the encoder alone"
    )
