"""Tokenizer classes of Transformers: how each splits text, given its configuration.

Some classes take tokenizer.json as it is. The others read its vocabulary alone and build the rest
from tokenizer_config.json, or from their defaults where that states nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertwright.errors import UserError
from bertwright.text.tokenizers import FILE, lowers

CONFIG = "tokenizer_config.json"

Settings = dict[str, Any]
"""What a tokenizer.json states."""


@dataclass(frozen=True)
class StockClass:
    """A tokenizer class that reads only the vocabulary of tokenizer.json.

    Attributes:
        model: the type of its model.
        conform: makes the settings of a tokenizer.json those of the class, given what the
            configuration states.
        files: what it reads where there is no tokenizer.json.
    """

    model: str
    conform: Callable[[Settings, Mapping[str, Any]], None]
    files: tuple[str, ...] = ()


class Contradiction(UserError):
    """What tokenizer.json says otherwise than tokenizer_config.json or the class named there."""


def class_name(folder: Path, config: Mapping[str, Any], model_config: Mapping[str, Any]) -> str:
    """Return the tokenizer class of a folder without its suffix "Fast"; "" where none is named.

    A configuration that names none is that of the class registered for the type of the model.
    """
    kind = model_config.get("model_type")
    if kind in AS_IT_IS_FOR and (folder / FILE).is_file():
        return AS_IT_IS[0]
    name = config.get("tokenizer_class") or model_config.get("tokenizer_class")
    if not name and (folder / CONFIG).is_file():
        name = REGISTERED.get(str(kind), "")
    return str(name or "").removesuffix("Fast")


def stock_class(folder: Path, name: str) -> StockClass | None:
    """Return the class of this name; None for one that takes tokenizer.json as it is.

    Errors: UserError for a class that is not understood.
    """
    if name in ("", *AS_IT_IS):
        return None
    if name not in CLASSES:
        raise UserError(
            f"{folder}: the tokenizer class is {name}, which is not understood: save it with "
            f"Transformers as PreTrainedTokenizerFast, if it can be; understood are "
            f"{', '.join(sorted(CLASSES))}"
        )
    return CLASSES[name]


def conform(settings: Settings, name: str, config: Mapping[str, Any]) -> None:
    """Make the settings of a tokenizer.json those of a class of CLASSES, in place.

    Errors: Contradiction where they cannot be.
    """
    model = settings["model"]
    if model["type"] != CLASSES[name].model:
        raise Contradiction(
            f"its model is {model['type']}, and that of {name} {CLASSES[name].model}"
        )
    for key, usual in FIXED[name if name in FIXED else model["type"]].items():
        if (model.get(key) or usual) != usual:
            raise Contradiction(f"{key} of its model is {model[key]!r}, and of {name} {usual!r}")
    CLASSES[name].conform(settings, config)


def _like_bert(settings: Settings, config: Mapping[str, Any]) -> None:
    _require(settings, "normalizer", "BertNormalizer")
    _require(settings, "pre_tokenizer", "BertPreTokenizer")
    unknown, stated = settings["model"]["unk_token"], config.get("unk_token", "[UNK]")
    if unknown != (stated.get("content") if isinstance(stated, dict) else stated):
        raise Contradiction(f"its model has the unk_token {unknown!r}, and the class {stated!r}")
    settings["normalizer"] |= {
        "clean_text": True,
        "lowercase": bool(config.get("do_lower_case", True)),
        "handle_chinese_chars": bool(config.get("tokenize_chinese_chars", True)),
        "strip_accents": config.get("strip_accents"),
    }


def _like_roberta(settings: Settings, config: Mapping[str, Any]) -> None:
    if settings["normalizer"] is not None:
        raise Contradiction(f"it has the normalizer {_type(settings['normalizer'])}")
    _require(settings, "pre_tokenizer", "ByteLevel")
    if not settings["pre_tokenizer"].get("use_regex", True):
        raise Contradiction("use_regex of its pre_tokenizer is false")
    space = bool(config.get("add_prefix_space", False))
    settings["pre_tokenizer"]["add_prefix_space"] = space
    processor = settings["post_processor"]
    if processor is not None and processor["type"] == "RobertaProcessing":
        processor["add_prefix_space"] = space


def _like_gpt(settings: Settings, config: Mapping[str, Any]) -> None:
    _require(settings, "normalizer", "BertNormalizer")
    _require(settings, "pre_tokenizer", "BertPreTokenizer")
    if not settings["normalizer"]["lowercase"]:
        raise Contradiction("lowercase of its normalizer is false")


def _lowercase(usual: bool) -> Callable[[Settings, Mapping[str, Any]], None]:
    def check(settings: Settings, config: Mapping[str, Any]) -> None:
        _require_equal("do_lower_case", config, usual, lowers(settings["normalizer"]))

    return check


def _accents(settings: Settings, config: Mapping[str, Any]) -> None:
    keeps = not any(part["type"] == "StripAccents" for part in _parts(settings["normalizer"]))
    _require_equal("keep_accents", config, False, keeps)


def _prefix_space(settings: Settings, config: Mapping[str, Any]) -> None:
    spaces = [part for part in _parts(settings["pre_tokenizer"]) if part["type"] == "Metaspace"]
    space = any(part.get("prepend_scheme", "always") != "never" for part in spaces)
    _require_equal("add_prefix_space", config, True, space)


def _sentinels(settings: Settings, config: Mapping[str, Any]) -> None:
    tokens = [piece for piece, _ in settings["model"]["vocab"]]
    tokens += [token["content"] for token in settings["added_tokens"]]
    number = len({token for token in tokens if token.startswith("<extra_id_")})
    _require_equal("extra_ids", config, number, number)


def _like_sentencepiece(*checks: Callable[[Settings, Mapping[str, Any]], None]) -> StockClass:
    def check(settings: Settings, config: Mapping[str, Any]) -> None:
        for one in checks:
            one(settings, config)

    return StockClass("Unigram", check)


def _require_equal(key: str, config: Mapping[str, Any], usual: Any, here: Any) -> None:
    """Contradiction where a configuration, or the default of its class, says otherwise."""
    if config.get(key, usual) != here:
        stated = "states" if key in config else "leaves out, which means"
        raise Contradiction(
            f"{CONFIG} {stated} {key}: {str(config.get(key, usual)).lower()}, and {FILE} does "
            f"otherwise"
        )


def _require(settings: Settings, part: str, kind: str) -> None:
    if _type(settings[part]) != kind:
        raise Contradiction(f"its {part} is {_type(settings[part])}, and that of the class {kind}")


def _type(part: Settings | None) -> str:
    return "none" if part is None else part["type"]


def _parts(part: Settings | None) -> list[Settings]:
    """A normaliser or pre-tokenizer in its parts."""
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [part]
    inner = part.get("normalizers") or part.get("pretokenizers") or []
    return [own for each in inner for own in _parts(each)]


AS_IT_IS = ("PreTrainedTokenizer", "TokenizersBackend")
"""Classes that take tokenizer.json as it is."""

AS_IT_IS_FOR = ("modernbert",)
"""Types of models for which Transformers does so whatever class is named."""

_BERT = StockClass("WordPiece", _like_bert, ("vocab.txt",))
_ROBERTA = StockClass("BPE", _like_roberta, ("vocab.json", "merges.txt"))

CLASSES: dict[str, StockClass] = {
    "BertTokenizer": _BERT,
    "DistilBertTokenizer": _BERT,
    "ElectraTokenizer": _BERT,
    "MobileBertTokenizer": _BERT,
    "RobertaTokenizer": _ROBERTA,
    "LongformerTokenizer": _ROBERTA,
    "BartTokenizer": _ROBERTA,
    "GPT2Tokenizer": _ROBERTA,
    "OpenAIGPTTokenizer": StockClass("BPE", _like_gpt, ("vocab.json", "merges.txt")),
    "AlbertTokenizer": _like_sentencepiece(_lowercase(True), _accents, _prefix_space),
    "XLNetTokenizer": _like_sentencepiece(_lowercase(False)),
    "XLMRobertaTokenizer": _like_sentencepiece(_prefix_space),
    "BigBirdTokenizer": _like_sentencepiece(_prefix_space),
    "T5Tokenizer": _like_sentencepiece(_sentinels),
}

_BPE: Settings = {
    "ignore_merges": False,
    "byte_fallback": False,
    "continuing_subword_prefix": "",
    "end_of_word_suffix": "",
}
FIXED: dict[str, Settings] = {
    "WordPiece": {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
    "BPE": _BPE,
    "OpenAIGPTTokenizer": _BPE | {"end_of_word_suffix": "</w>"},
    "Unigram": {"byte_fallback": False},
}
"""What no configuration changes of the models of these types, and of the model of one class."""

REGISTERED = {
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
"""The class that Transformers takes for a type of model where none is named."""
