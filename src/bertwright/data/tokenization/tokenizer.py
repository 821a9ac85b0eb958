"""Tokenizers, based on the ``tokenizers`` library."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
import tokenizers as library
from numpy.typing import NDArray
from pydantic import Field

from bertwright.core.config import Config
from bertwright.core.errors import UserError
from bertwright.core.files import parse_json, read_text, write_text
from bertwright.data.hub.download import local_folder
from bertwright.data.tokenization.backend import read_backend, require_safe_backend, translate_error
from bertwright.data.tokenization.boundaries import WORD_START, token_boundaries
from bertwright.data.tokenization.characters import replace_lone_surrogates

TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_INFO_FILE = "tokenizer_kind.json"

_MODEL_KINDS = {
    "WordPiece": "wordpiece",
    "BPE": "byte-bpe",
    "Unigram": "unigram",
    "WordLevel": "words",
}
ITEM_MODEL, ITEM_PRE_TOKENIZER = "WordLevel", "WhitespaceSplit"
"""Types of model and pre-tokenizer that identify a tokenizer of items."""

SENTINEL_PREFIX = "<extra_id_"
"""Prefix of the names of sentinel tokens."""

SPECIAL_TOKEN_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unknown": ("[UNK]", "<unk>"),
    "start": ("[CLS]", "<s>"),
    "end": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}


class TokenizerConfig(Config):
    """A configuration of a tokenizer and its vocabulary size.

    The last ``sentinels`` tokens of the vocabulary stand for removed spans. As in T5, the last one
    is called <extra_id_0>, the one before it <extra_id_1>, and so on.
    """

    # A text may have few words, and a table few items; the size includes the special tokens.
    vocab_size: int = Field(default=16_384, ge=6, le=1 << 24)
    lowercase: bool = False
    sentinels: int = Field(default=0, ge=0, le=65_536)


class WordPieceConfig(TokenizerConfig):
    """WordPiece: words and punctuation, split into the longest known tokens from the left (BERT).

    As in the ``tokenizers`` library, the vocabulary is trained by byte-pair merges of characters.
    The likelihood trainer of Schuster and Nakajima (2012) was never published.
    """

    kind: Literal["wordpiece"] = "wordpiece"
    lowercase: bool = True


class ByteBpeConfig(TokenizerConfig):
    """Byte-pair encoding of UTF-8 bytes (GPT-2, RoBERTa), without unknown tokens."""

    kind: Literal["byte-bpe"] = "byte-bpe"


class UnigramConfig(TokenizerConfig):
    """Unigram: the most probable segmentation under a unigram model (Kudo 2018; ALBERT, XLNet)."""

    kind: Literal["unigram"] = "unigram"


class WordLevelConfig(TokenizerConfig):
    """A token for each of the most frequent words and punctuation marks; all others are unknown.

    Word-level language models such as ELMo and Transformer-XL use it.
    """

    kind: Literal["words"] = "words"


class ItemTokenizerConfig(TokenizerConfig):
    """A token for each item code; codes are separated by spaces (Sun et al. 2019).

    ``prepare`` builds this tokenizer from interaction histories.
    """

    kind: Literal["items"] = "items"


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of the special tokens."""

    pad: int
    unknown: int
    start: int
    end: int
    mask: int

    @cached_property
    def all(self) -> frozenset[int]:
        """Return all special token ids."""
        return frozenset((self.pad, self.unknown, self.start, self.end, self.mask))


class Tokenizer:
    """An immutable tokenizer with its special tokens.

    ``roles`` maps roles such as ``mask`` to special tokens that are named differently from BERT's
    and RoBERTa's. One token may have several roles.
    """

    def __init__(self, backend: library.Tokenizer, roles: Mapping[str, str] | None = None) -> None:
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self.settings: dict[str, Any] = json.loads(backend.to_str())
        require_safe_backend(backend, self.settings)
        self.kind = _tokenizer_kind(self.settings)
        _require_deterministic(backend)
        self.roles = dict(roles or {})
        self.special_tokens = _find_special_tokens(backend, self.roles)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Load the tokenizer of a folder (of a tokenizer, a data set or a model), or by name.

        Errors: UserError if there is no folder, it has none, or its file is not a tokenizer.
        """
        folder = local_folder(path)
        file = folder / TOKENIZER_FILE
        if not folder.is_dir():
            raise UserError(f"no folder {folder} (a name on the Hub is written owner/name)")
        if not file.is_file():
            raise UserError(
                f"{folder} holds no {TOKENIZER_FILE}: copy the model's own, as no other has its "
                f"tokens, or train one with 'bertwright tokenizer train TEXT -o DIR'"
            )
        backend, roles = read_backend(file), _read_roles(folder / TOKENIZER_INFO_FILE)
        try:
            return cls(backend, roles)
        except UserError as error:
            raise UserError(f"{file}: {error}") from None

    def save(self, path: Path | str) -> None:
        """Write the tokenizer into a folder, which need not be empty."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / TOKENIZER_FILE, self.backend.to_str(pretty=True))
        info: dict[str, Any] = {"kind": self.kind, "vocab_size": self.vocab_size, "hash": self.hash}
        info |= {"roles": self.roles} if self.roles else {}
        write_text(folder / TOKENIZER_INFO_FILE, json.dumps(info, indent=1) + "\n")

    @property
    def vocab_size(self) -> int:
        """Return the highest id plus one, which is the number of rows of an embedding table."""
        return int(self.ids[-1]) + 1

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """Return the ids of all tokens, special ones included, in ascending order, (N,)."""
        vocabulary = self.settings["model"]["vocab"]
        if isinstance(vocabulary, list):  # Unigram lists entries in the order of ids
            vocabulary = {entry[0]: index for index, entry in enumerate(vocabulary)}
        added = [token["id"] for token in self.settings["added_tokens"]]
        return np.unique(np.array([*vocabulary.values(), *added], np.int64))

    @cached_property
    def unused_ids(self) -> frozenset[int]:
        """Return the ids below ``vocab_size`` without a token, as in some published models."""
        return frozenset(np.setdiff1d(np.arange(self.vocab_size), self.ids).tolist())

    @cached_property
    def reserved_ids(self) -> frozenset[int]:
        """Return the ids of special tokens and sentinels, which occur in text only if spelled out.

        The unknown token is included only if the model never produces it.
        """
        added = self.settings["added_tokens"]
        special = {
            t["id"] for t in added if t["special"] or t["content"].startswith(SENTINEL_PREFIX)
        }
        model = self.settings["model"]
        reserved = self.special_tokens.all | special
        if model.get("unk_token") is None and model.get("unk_id") is None:
            return reserved
        return reserved - {self.special_tokens.unknown}

    @cached_property
    def lowercase(self) -> bool:
        """Return whether the tokenizer lower-cases text."""
        return lowercases(self.settings["normalizer"])

    @cached_property
    def hash(self) -> str:
        """Return a SHA-256 digest of all settings that affect tokenization."""
        settings = {k: v for k, v in self.settings.items() if k not in ("padding", "truncation")}
        settings |= {"roles": self.roles} if self.roles else {}
        text = json.dumps(settings, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return sha256(text.encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without special tokens."""
        return self._encode(text).ids

    def encode_with_masks(self, text: str) -> list[int]:
        """Return the token ids of a text; ``[MASK]`` and the mask token's name are the mask token.

        A space before a mask belongs to the masked token.
        """
        mask = self.special_tokens.mask
        *parts, rest = text.replace(self.id_to_token(mask), "[MASK]").split("[MASK]")
        ids = [i for part in parts for i in (*self.encode(part.rstrip(" ")), mask)]
        return ids + self.encode(rest)

    def _encode(self, text: str) -> library.Encoding:
        try:
            return self.backend.encode(text, add_special_tokens=False)
        except TypeError:  # the text has lone surrogates
            return self._encode(replace_lone_surrogates(text))
        except BaseException as error:
            raise translate_error(error) from None

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of many texts."""
        try:
            encodings = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:
            encodings = [self._encode(text) for text in texts]
        except BaseException as error:
            raise translate_error(error) from None
        return [encoding.ids for encoding in encodings]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the token ids of a text, and the characters [start, stop) of each token.

        The white space before a token is not part of it.
        """
        encoding = self._encode(text)
        return encoding.ids, [
            (stop - len(text[start:stop].lstrip()), stop) for start, stop in encoding.offsets
        ]

    def encode_with_word_starts(self, text: str) -> tuple[list[int], list[int]]:
        """Return the token ids of a text, and the indices of tokens where a word starts."""
        encoding = self._encode(text)
        boundaries, _ = token_boundaries(text, encoding.offsets)
        return encoding.ids, [n for n, flags in enumerate(boundaries) if flags & WORD_START]

    def encode_pretokenized(self, words: list[str]) -> tuple[list[int], list[int]]:
        """Return the token ids of words, and the index of the first token of each word.

        A word without tokens, such as a control character, becomes the unknown token.
        """
        ids: list[int] = []
        first_tokens: list[int] = []
        for index, word in enumerate(words):
            first_tokens.append(len(ids))
            text = f" {word}" if index and self.kind == "byte-bpe" else word
            ids += self.encode(text) or [self.special_tokens.unknown]
        return ids, first_tokens

    def decode(self, ids: list[int]) -> str:
        """Return the text of token ids, without special tokens."""
        try:
            return self.backend.decode(ids, skip_special_tokens=True)
        except BaseException as error:
            raise translate_error(error) from None

    def id_to_token(self, token_id: int) -> str:
        """Return the token with an id; IndexError if there is none."""
        token = self.backend.id_to_token(token_id)
        if token is None:
            raise IndexError(f"there is no token {token_id} in a vocabulary of {len(self.ids):,}")
        return token

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token; None if it is not in the vocabulary."""
        return self.backend.token_to_id(token)


def _require_deterministic(backend: library.Tokenizer) -> None:
    """Raise UserError for a model that segments at random."""
    dropout = getattr(backend.model, "dropout", None)
    if dropout:
        raise UserError(
            f"the tokenizer drops merges at random (dropout {dropout:.3g}), so its tokens vary: "
            f"set dropout of its model to null"
        )
    if getattr(backend.model, "alpha", None) is not None:
        raise UserError(
            "the tokenizer samples its segmentation (alpha), so its tokens vary: set alpha of its "
            "model to null"
        )


def _tokenizer_kind(settings: dict[str, Any]) -> str:
    model: str = settings["model"]["type"]
    pre_tokenizer = (settings["pre_tokenizer"] or {}).get("type")
    if (model, pre_tokenizer) == (ITEM_MODEL, ITEM_PRE_TOKENIZER):
        return "items"
    return _MODEL_KINDS.get(model, model.lower())


def _read_roles(file: Path) -> dict[str, str]:
    """Return the roles of special tokens in a file; UserError for a damaged file."""
    if not file.is_file():
        return {}
    info = parse_json(read_text(file), str(file), "copy it again")
    roles = info.get("roles", {}) if isinstance(info, dict) else None
    if not isinstance(roles, dict) or not all(isinstance(name, str) for name in roles.values()):
        raise UserError(f"{file} is damaged (it has no roles): copy it again")
    return cast(dict[str, str], roles)


def lowercases(normalizer: dict[str, Any] | None) -> bool:
    """Return whether a normaliser of tokenizer.json lower-cases text."""
    if not normalizer:
        return False
    parts = normalizer.get("normalizers", [])
    return bool(
        normalizer["type"] == "Lowercase"
        or normalizer.get("lowercase")
        or any(map(lowercases, parts))
    )


def _find_special_tokens(backend: library.Tokenizer, roles: Mapping[str, str]) -> SpecialTokens:
    special_ids: dict[str, int] = {}
    for role, default_names in SPECIAL_TOKEN_NAMES.items():
        names = (roles[role],) if role in roles else default_names
        ids = [i for i in map(backend.token_to_id, names) if i is not None]
        if not ids:
            raise UserError(f"the tokenizer has no token for {role}: one of {', '.join(names)}")
        special_ids[role] = ids[0]
    return SpecialTokens(**special_ids)
