"""Tokenizer classes of Transformers, and how each splits text, given its configuration.

Some classes use tokenizer.json as it is. Others read only its vocabulary and take the rest from
tokenizer_config.json or from defaults.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE
from bertwright.interop.huggingface.tokenizer.stock_class import (
    TOKENIZER_CONFIG_FILE,
    StockTokenizerClass,
    TokenizerConflict,
    TokenizerJson,
)
from bertwright.interop.huggingface.tokenizer.unigram_classes import UNIGRAM_CLASSES


def find_class_name(
    folder: Path, config: Mapping[str, Any], model_config: Mapping[str, Any]
) -> str:
    """Return a folder's tokenizer class without the suffix "Fast"; "" if none is named.

    If the configuration names no class, the default class of the model type is used.
    """
    model_type = model_config.get("model_type")
    if model_type in GENERIC_MODEL_TYPES and (folder / TOKENIZER_FILE).is_file():
        return GENERIC_CLASSES[0]
    name = config.get("tokenizer_class") or model_config.get("tokenizer_class")
    if not name and (folder / TOKENIZER_CONFIG_FILE).is_file():
        name = DEFAULT_CLASSES.get(str(model_type), "")
    return str(name or "").removesuffix("Fast")


def find_stock_class(folder: Path, name: str) -> StockTokenizerClass | None:
    """Return the class of this name; None if it uses tokenizer.json unchanged.

    Raises UserError for an unsupported class.
    """
    if name in ("", *GENERIC_CLASSES):
        return None
    if name not in STOCK_CLASSES:
        raise UserError(
            f"{folder}: the tokenizer class is {name}, which is not supported: save it with "
            f"Transformers as PreTrainedTokenizerFast, if possible; supported are "
            f"{', '.join(sorted(STOCK_CLASSES))}"
        )
    return STOCK_CLASSES[name]


def conform(tokenizer_json: TokenizerJson, name: str, config: Mapping[str, Any]) -> None:
    """Modify a tokenizer.json to match a class in ``STOCK_CLASSES``.

    Raises TokenizerConflict if it cannot match.
    """
    model = tokenizer_json["model"]
    if model["type"] != STOCK_CLASSES[name].model_type:
        raise TokenizerConflict(
            f"its model is {model['type']}, and {name} has {STOCK_CLASSES[name].model_type}"
        )
    for key, fixed in FIXED_MODEL_SETTINGS[
        name if name in FIXED_MODEL_SETTINGS else model["type"]
    ].items():
        if (model.get(key) or fixed) != fixed:
            raise TokenizerConflict(
                f"{key} of its model is {model[key]!r}, and {name} has {fixed!r}"
            )
    STOCK_CLASSES[name].conform(tokenizer_json, config)


def _conform_bert(tokenizer_json: TokenizerJson, config: Mapping[str, Any]) -> None:
    _require_type(tokenizer_json, "normalizer", "BertNormalizer")
    _require_type(tokenizer_json, "pre_tokenizer", "BertPreTokenizer")
    unknown, stated = tokenizer_json["model"]["unk_token"], config.get("unk_token", "[UNK]")
    if unknown != (stated.get("content") if isinstance(stated, dict) else stated):
        raise TokenizerConflict(
            f"its model has the unk_token {unknown!r}, and the class {stated!r}"
        )
    tokenizer_json["normalizer"] |= {
        "clean_text": True,
        "lowercase": bool(config.get("do_lower_case", True)),
        "handle_chinese_chars": bool(config.get("tokenize_chinese_chars", True)),
        "strip_accents": config.get("strip_accents"),
    }


def _conform_roberta(tokenizer_json: TokenizerJson, config: Mapping[str, Any]) -> None:
    if tokenizer_json["normalizer"] is not None:
        raise TokenizerConflict(f"it has the normalizer {_type_name(tokenizer_json['normalizer'])}")
    _require_type(tokenizer_json, "pre_tokenizer", "ByteLevel")
    if not tokenizer_json["pre_tokenizer"].get("use_regex", True):
        raise TokenizerConflict("use_regex of its pre_tokenizer is false")
    prefix_space = bool(config.get("add_prefix_space", False))
    tokenizer_json["pre_tokenizer"]["add_prefix_space"] = prefix_space
    processor = tokenizer_json["post_processor"]
    if processor is not None and processor["type"] == "RobertaProcessing":
        processor["add_prefix_space"] = prefix_space


def _conform_gpt(tokenizer_json: TokenizerJson, config: Mapping[str, Any]) -> None:
    _require_type(tokenizer_json, "normalizer", "BertNormalizer")
    _require_type(tokenizer_json, "pre_tokenizer", "BertPreTokenizer")
    if not tokenizer_json["normalizer"]["lowercase"]:
        raise TokenizerConflict("lowercase of its normalizer is false")


def _require_type(tokenizer_json: TokenizerJson, part: str, kind: str) -> None:
    if _type_name(tokenizer_json[part]) != kind:
        raise TokenizerConflict(
            f"its {part} is {_type_name(tokenizer_json[part])}, and the class has {kind}"
        )


def _type_name(part: TokenizerJson | None) -> str:
    return "none" if part is None else part["type"]


GENERIC_CLASSES = ("PreTrainedTokenizer", "TokenizersBackend")
"""Classes that use tokenizer.json unchanged."""

GENERIC_MODEL_TYPES = ("modernbert",)
"""Model types for which Transformers ignores the named class."""

_BERT = StockTokenizerClass("WordPiece", _conform_bert, ("vocab.txt",))
_ROBERTA = StockTokenizerClass("BPE", _conform_roberta, ("vocab.json", "merges.txt"))

STOCK_CLASSES: dict[str, StockTokenizerClass] = {
    "BertTokenizer": _BERT,
    "DistilBertTokenizer": _BERT,
    "ElectraTokenizer": _BERT,
    "MobileBertTokenizer": _BERT,
    "RobertaTokenizer": _ROBERTA,
    "LongformerTokenizer": _ROBERTA,
    "BartTokenizer": _ROBERTA,
    "GPT2Tokenizer": _ROBERTA,
    "OpenAIGPTTokenizer": StockTokenizerClass("BPE", _conform_gpt, ("vocab.json", "merges.txt")),
    **UNIGRAM_CLASSES,
}

_BPE: TokenizerJson = {
    "ignore_merges": False,
    "byte_fallback": False,
    "continuing_subword_prefix": "",
    "end_of_word_suffix": "",
}
FIXED_MODEL_SETTINGS: dict[str, TokenizerJson] = {
    "WordPiece": {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
    "BPE": _BPE,
    "OpenAIGPTTokenizer": _BPE | {"end_of_word_suffix": "</w>"},
    "Unigram": {"byte_fallback": False},
}
"""Settings that no configuration can change, by model type, or by class if listed."""

DEFAULT_CLASSES = {
    "bert": "BertTokenizer",
    "electra": "BertTokenizer",
    "distilbert": "BertTokenizer",
    "mobilebert": "BertTokenizer",
    "roberta": "RobertaTokenizer",
    "longformer": "RobertaTokenizer",
    "bart": "RobertaTokenizer",
    "gpt2": "GPT2Tokenizer",
    "openai-gpt": "OpenAIGPTTokenizer",
    "albert": "AlbertTokenizer",
    "xlnet": "XLNetTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "big_bird": "BigBirdTokenizer",
    "t5": "T5Tokenizer",
}
"""The default class of each model type."""
