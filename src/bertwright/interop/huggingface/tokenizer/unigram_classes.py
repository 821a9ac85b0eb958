"""Tokenizer classes of Transformers with a unigram vocabulary.

They build their normaliser and pre-tokenizer from their configuration. Of the normaliser in
tokenizer.json they keep the table of characters of SentencePiece, if it is not nested.
"""

from collections.abc import Callable, Mapping
from typing import Any

from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE, lowercases
from bertwright.interop.huggingface.tokenizer.stock_class import (
    TOKENIZER_CONFIG_FILE,
    StockTokenizerClass,
    TokenizerConflict,
    TokenizerJson,
)

Check = Callable[[TokenizerJson, Mapping[str, Any]], None]


def _unigram_class(
    normaliser: Callable[[Mapping[str, Any], list[TokenizerJson]], TokenizerJson | None],
    unknown_id: Callable[[TokenizerJson, Mapping[str, Any]], int],
    *checks: Check,
    splits_whitespace: bool = True,
) -> StockTokenizerClass:
    reads_prefix_space = _check_prefix_space in checks

    def conform(settings: TokenizerJson, config: Mapping[str, Any]) -> None:
        for run_check in checks:
            run_check(settings, config)
        expected_id, actual_id = unknown_id(settings, config), settings["model"]["unk_id"]
        if actual_id != expected_id:
            raise TokenizerConflict(
                f"unk_id of its model is {actual_id}, and the class has {expected_id}"
            )
        has_prefix_space = not reads_prefix_space or config.get("add_prefix_space", True)
        settings["normalizer"] = normaliser(config, _character_table(settings["normalizer"]))
        settings["pre_tokenizer"] = _pre_tokenizer(has_prefix_space, splits_whitespace)

    return StockTokenizerClass("Unigram", conform)


def _like_albert(
    config: Mapping[str, Any], character_table: list[TokenizerJson]
) -> TokenizerJson | None:
    accents = [] if config.get("keep_accents", False) else _ACCENTS
    case = _LOWERCASE if config.get("do_lower_case", True) else []
    return _sequence([*_QUOTES, *accents, *case, *character_table])


def _like_xlnet(
    config: Mapping[str, Any], character_table: list[TokenizerJson]
) -> TokenizerJson | None:
    case = _LOWERCASE if config.get("do_lower_case", False) else []
    return _sequence([*_QUOTES, *_ACCENTS, *case, *character_table])


def _only_character_table(
    config: Mapping[str, Any], character_table: list[TokenizerJson]
) -> TokenizerJson | None:
    return character_table[0] if character_table else None


def _like_big_bird(
    config: Mapping[str, Any], character_table: list[TokenizerJson]
) -> TokenizerJson | None:
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
    return _sequence([{"type": "Strip", "strip_left": False, "strip_right": False}, spaces])


def _character_table(normaliser: TokenizerJson | None) -> list[TokenizerJson]:
    """Return SentencePiece's table of characters; empty if there is none, or a nested one."""
    if normaliser is None:
        return []
    parts = normaliser["normalizers"] if normaliser["type"] == "Sequence" else [normaliser]
    return [part for part in parts if part["type"] == "Precompiled"][:1]


def _pre_tokenizer(has_prefix_space: bool, splits_whitespace: bool) -> TokenizerJson:
    metaspace = {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "always" if has_prefix_space else "never",
        "split": True,
    }
    if not splits_whitespace:
        return metaspace
    return {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]}


def _check_lowercase(default: bool) -> Check:
    def check(settings: TokenizerJson, config: Mapping[str, Any]) -> None:
        _require_equal("do_lower_case", config, default, lowercases(settings["normalizer"]))

    return check


def _check_accents(settings: TokenizerJson, config: Mapping[str, Any]) -> None:
    parts = _leaves(settings["normalizer"])
    keeps_accents = not any(part["type"] == "StripAccents" for part in parts)
    _require_equal("keep_accents", config, False, keeps_accents)


def _check_prefix_space(settings: TokenizerJson, config: Mapping[str, Any]) -> None:
    metaspaces = [
        part for part in _leaves(settings["pre_tokenizer"]) if part["type"] == "Metaspace"
    ]
    has_prefix_space = any(part.get("prepend_scheme", "always") != "never" for part in metaspaces)
    _require_equal("add_prefix_space", config, True, has_prefix_space)


def _check_sentinels(settings: TokenizerJson, config: Mapping[str, Any]) -> None:
    tokens = [token for token, _ in settings["model"]["vocab"]]
    tokens += [token["content"] for token in settings["added_tokens"]]
    num_sentinels = len({token for token in tokens if token.startswith("<extra_id_")})
    _require_equal("extra_ids", config, num_sentinels, num_sentinels)


def _require_equal(key: str, config: Mapping[str, Any], default: Any, actual: Any) -> None:
    """Raise TokenizerConflict if a configuration value, or the class's default, differs."""
    if config.get(key, default) != actual:
        stated = "states" if key in config else "leaves out, which means"
        raise TokenizerConflict(
            f"{TOKENIZER_CONFIG_FILE} {stated} {key}: {str(config.get(key, default)).lower()}, and "
            f"{TOKENIZER_FILE} differs"
        )


def _fixed_id(unknown_id: int) -> Callable[[TokenizerJson, Mapping[str, Any]], int]:
    return lambda settings, config: unknown_id


def _stated_id(settings: TokenizerJson, config: Mapping[str, Any]) -> int:
    return config.get("unk_id", 0)


def _id_of_unknown_token(settings: TokenizerJson, config: Mapping[str, Any]) -> int:
    token = config.get("unk_token", "<unk>")
    token = token["content"] if isinstance(token, dict) else token
    ids = [i for i, entry in enumerate(settings["model"]["vocab"]) if entry == [token, 0.0]]
    return ids[0] if ids else 100


def _sequence(parts: list[TokenizerJson]) -> TokenizerJson:
    return {"type": "Sequence", "normalizers": parts}


def _leaves(part: TokenizerJson | None) -> list[TokenizerJson]:
    """Return the innermost parts of a normaliser or pre-tokenizer."""
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [part]
    inner = part.get("normalizers") or part.get("pretokenizers") or []
    return [leaf for child in inner for leaf in _leaves(child)]


_QUOTES: list[TokenizerJson] = [
    {"type": "Replace", "pattern": {"String": quotes}, "content": '"'} for quotes in ("``", "''")
]
_ACCENTS: list[TokenizerJson] = [{"type": "NFKD"}, {"type": "StripAccents"}]
_LOWERCASE: list[TokenizerJson] = [{"type": "Lowercase"}]

UNIGRAM_CLASSES = {
    "AlbertTokenizer": _unigram_class(
        _like_albert, _fixed_id(1), _check_lowercase(True), _check_accents, _check_prefix_space
    ),
    "XLNetTokenizer": _unigram_class(_like_xlnet, _stated_id, _check_lowercase(False)),
    "XLMRobertaTokenizer": _unigram_class(_only_character_table, _fixed_id(3), _check_prefix_space),
    "BigBirdTokenizer": _unigram_class(
        _like_big_bird, _id_of_unknown_token, _check_prefix_space, splits_whitespace=False
    ),
    "T5Tokenizer": _unigram_class(_only_character_table, _fixed_id(2), _check_sentinels),
}
