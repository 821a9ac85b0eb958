"""Tokenizers: text to pieces and back, on the ``tokenizers`` library."""

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

from bertwright.axes import Choice
from bertwright.errors import UserError
from bertwright.files import parse_json, read_text, write_text
from bertwright.text.characters import healed
from bertwright.text.marks import WORD_START, mark_pieces
from bertwright.text.tokenizer_library import failure, read_backend, require_readable

FILE = "tokenizer.json"
ABOUT = "tokenizer_kind.json"

_MODEL_KINDS = {
    "WordPiece": "wordpiece",
    "BPE": "byte-bpe",
    "Unigram": "unigram",
    "WordLevel": "words",
}
ITEM_MODEL, ITEM_CUT = "WordLevel", "WhitespaceSplit"
"""What a tokenizer of items is told by: a list of codes, and nothing but spaces between them."""

SENTINEL = "<extra_id_"
"""How the names of sentinels begin."""

SPECIAL_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unknown": ("[UNK]", "<unk>"),
    "start": ("[CLS]", "<s>"),
    "end": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}


class TokenizerChoice(Choice):
    """How text is cut into pieces, and how many different pieces there are.

    The last ``sentinels`` of them stand for no text: they are kept for what is taken out of it.
    They are called <extra_id_0> and so on, from the last one down, as by T5.
    """

    size: int = Field(default=16_384, ge=16, le=1 << 24)
    lowercase: bool = False
    sentinels: int = Field(default=0, ge=0, le=65_536)


class WordPieceChoice(TokenizerChoice):
    """Words and punctuation, cut from the left into the longest known pieces (BERT).

    The vocabulary is learned as the ``tokenizers`` library does under this name: by byte-pair
    merges of characters, not by the likelihood of Schuster and Nakajima (2012), whose trainer was
    never published; only the cutting is WordPiece's.
    """

    kind: Literal["wordpiece"] = "wordpiece"
    lowercase: bool = True


class ByteBpeChoice(TokenizerChoice):
    """Byte-pair encoding of UTF-8 bytes (GPT-2, RoBERTa): no text is unknown to it."""

    kind: Literal["byte-bpe"] = "byte-bpe"


class UnigramChoice(TokenizerChoice):
    """The most probable cut under a unigram model of pieces (Kudo 2018; ALBERT, XLNet)."""

    kind: Literal["unigram"] = "unigram"


class WordsChoice(TokenizerChoice):
    """The most frequent words and marks of punctuation, numbered by their frequency; all others are
    unknown (word language models; ELMo, Transformer-XL)."""

    kind: Literal["words"] = "words"


class ItemsChoice(TokenizerChoice):
    """A piece for each item that users have dealt with (Sun et al. 2019): no text is cut, the codes
    of items stand between spaces. ``prepare`` makes it from the histories that it reads."""

    kind: Literal["items"] = "items"
    # A shop may have few of them; special pieces count, too.
    size: int = Field(default=16_384, ge=6, le=1 << 24)


@dataclass(frozen=True)
class Specials:
    """The ids of the pieces that stand for no text."""

    pad: int
    unknown: int
    start: int
    end: int
    mask: int

    @cached_property
    def all(self) -> frozenset[int]:
        """Every special id."""
        return frozenset((self.pad, self.unknown, self.start, self.end, self.mask))


class Tokenizer:
    """A tokenizer with its special pieces; immutable.

    ``roles`` names special pieces that are called otherwise than BERT's and RoBERTa's: published
    vocabularies have others, and some let one piece stand for several.
    """

    def __init__(self, backend: library.Tokenizer, roles: Mapping[str, str] | None = None) -> None:
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self.settings: dict[str, Any] = json.loads(backend.to_str())
        require_readable(backend, self.settings)
        self.kind = _kind_of(self.settings)
        _require_deterministic(backend)
        self.roles = dict(roles or {})
        self.specials = _find_specials(backend, self.roles)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """The tokenizer in a folder (of a tokenizer, a data set or a model).

        Errors: UserError where there is none, or where it is not a tokenizer.
        """
        folder = Path(path)
        file = folder / FILE
        if not file.is_file():
            raise UserError(
                f"{folder} holds no {FILE}: of a model copy its own, no other has its pieces; else "
                f"make one with 'bertwright tokenizer train TEXT -o DIR'"
            )
        backend, roles = read_backend(file), _read_roles(folder / ABOUT)
        try:
            return cls(backend, roles)
        except UserError as error:
            raise UserError(f"{file}: {error}") from None

    def save(self, path: Path | str) -> None:
        """Write the tokenizer into a folder, which may hold other things."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / FILE, self.backend.to_str(pretty=True))
        about: dict[str, Any] = {"kind": self.kind, "size": self.size, "hash": self.hash}
        about |= {"roles": self.roles} if self.roles else {}
        write_text(folder / ABOUT, json.dumps(about, indent=1) + "\n")

    @property
    def size(self) -> int:
        """One more than the highest id: the rows that a table of embeddings needs."""
        return int(self.ids[-1]) + 1

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """(N,) the ids that stand for tokens, special ones included, in rising order."""
        model = self.settings["model"]["vocab"]
        pieces = {entry[0]: index for index, entry in enumerate(model)} if _listed(model) else model
        added = [token["id"] for token in self.settings["added_tokens"]]
        return np.unique(np.array([*pieces.values(), *added], np.int64))

    @cached_property
    def missing(self) -> frozenset[int]:
        """The ids below ``size`` that stand for no token, as a published vocabulary may have."""
        return frozenset(np.setdiff1d(np.arange(self.size), self.ids).tolist())

    @cached_property
    def reserved(self) -> frozenset[int]:
        """The ids that no text is made of: special tokens, sentinels. A text may spell them.

        The unknown token is among them only where no text is unknown.
        """
        added = self.settings["added_tokens"]
        special = {t["id"] for t in added if t["special"] or t["content"].startswith(SENTINEL)}
        model = self.settings["model"]
        reserved = self.specials.all | special
        if model.get("unk_token") is None and model.get("unk_id") is None:
            return reserved
        return reserved - {self.specials.unknown}

    @cached_property
    def lowercase(self) -> bool:
        """Whether capitals are read as small letters."""
        return lowers(self.settings["normalizer"])

    @cached_property
    def hash(self) -> str:
        """SHA-256 of everything that decides which pieces a text has."""
        deciding = {k: v for k, v in self.settings.items() if k not in ("padding", "truncation")}
        deciding |= {"roles": self.roles} if self.roles else {}
        text = json.dumps(deciding, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return sha256(text.encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """The pieces of a text; no special ones are added."""
        return self._encoded(text).ids

    def encode_hiding(self, text: str) -> list[int]:
        """The same, with the mask wherever a text says ``[MASK]``, or the mask as it is spelled
        here; a space before it belongs to what is hidden."""
        mask = self.specials.mask
        *parts, rest = text.replace(self.piece(mask), "[MASK]").split("[MASK]")
        ids = [i for part in parts for i in (*self.encode(part.rstrip(" ")), mask)]
        return ids + self.encode(rest)

    def _encoded(self, text: str) -> library.Encoding:
        try:
            return self.backend.encode(text, add_special_tokens=False)
        except TypeError:  # of a text that cannot be written
            return self._encoded(healed(text))
        except BaseException as error:
            raise failure(error) from None

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The pieces of many texts."""
        try:
            encodings = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:
            encodings = [self._encoded(text) for text in texts]
        except BaseException as error:
            raise failure(error) from None
        return [encoding.ids for encoding in encodings]

    def encode_spans(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """The pieces of many texts, and from where to where each stands among the characters, the
        white space before it left out."""
        found: list[tuple[list[int], list[tuple[int, int]]]] = []
        for text in texts:
            encoding = self._encoded(text)
            spans = [
                (stop - len(text[start:stop].lstrip()), stop) for start, stop in encoding.offsets
            ]
            found.append((encoding.ids, spans))
        return found

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return from where to where each piece of a text stands among its characters."""
        return self._encoded(text).offsets

    def encode_words(self, text: str) -> tuple[list[int], list[int]]:
        """The pieces of a text, and the indices of the pieces at which a word starts."""
        encoding = self._encoded(text)
        marks, _ = mark_pieces(text, encoding.offsets)
        return encoding.ids, [piece for piece, mark in enumerate(marks) if mark & WORD_START]

    def encode_part(self, text: str, start: int, stop: int) -> tuple[list[int], slice]:
        """The pieces of a text, and which of them reach into its characters [start, stop)."""
        encoding = self._encoded(text)
        inside = [
            piece
            for piece, (begin, end) in enumerate(encoding.offsets)
            if begin < stop and end > start
        ]
        return encoding.ids, slice(inside[0], inside[-1] + 1) if inside else slice(0, 0)

    def words(self, tokens: list[str]) -> tuple[list[int], list[int]]:
        """The pieces of a text that comes as words, and the first piece of each word.

        A word that has no piece (a control character alone) stands for itself as unknown, so every
        word has a place of its own.
        """
        ids: list[int] = []
        first: list[int] = []
        for position, token in enumerate(tokens):
            first.append(len(ids))
            spaced = f" {token}" if position and self.kind == "byte-bpe" else token
            ids += self.encode(spaced) or [self.specials.unknown]
        return ids, first

    def decode(self, ids: list[int]) -> str:
        """The text of some pieces; special ones are left out."""
        try:
            return self.backend.decode(ids, skip_special_tokens=True)
        except BaseException as error:
            raise failure(error) from None

    def piece(self, index: int) -> str:
        """The written form of a piece."""
        piece = self.backend.id_to_token(index)
        if piece is None:
            raise IndexError(f"there is no token {index} in a vocabulary of {len(self.ids):,}")
        return piece

    def id(self, piece: str) -> int | None:
        """The id of a written piece, if there is such a piece."""
        return self.backend.token_to_id(piece)


def _require_deterministic(backend: library.Tokenizer) -> None:
    """UserError for a model that samples: no text would have the same tokens twice."""
    dropout = getattr(backend.model, "dropout", None)
    if dropout:
        raise UserError(
            f"the tokenizer drops merges at random (dropout {dropout:.3g}), so that no text has "
            f"the same tokens twice: set dropout of its model to null"
        )
    if getattr(backend.model, "alpha", None) is not None:
        raise UserError(
            "the tokenizer samples how it splits (alpha), so that no text has the same tokens "
            "twice: make it without"
        )


def _listed(vocabulary: Any) -> bool:
    """Whether a model lists its tokens in the order of their ids (Unigram)."""
    return isinstance(vocabulary, list)


def _kind_of(settings: dict[str, Any]) -> str:
    model: str = settings["model"]["type"]
    cut = (settings["pre_tokenizer"] or {}).get("type")
    if (model, cut) == (ITEM_MODEL, ITEM_CUT):
        return "items"
    return _MODEL_KINDS.get(model, model.lower())


def _read_roles(file: Path) -> dict[str, str]:
    """Return the special pieces that a folder names itself; UserError for a damaged file."""
    if not file.is_file():
        return {}
    about = parse_json(read_text(file), str(file), "copy it again")
    roles = about.get("roles", {}) if isinstance(about, dict) else None
    if not isinstance(roles, dict) or not all(isinstance(name, str) for name in roles.values()):
        raise UserError(f"{file} is damaged (it names no roles): copy it again")
    return cast(dict[str, str], roles)


def lowers(normalizer: dict[str, Any] | None) -> bool:
    """Return whether a normaliser, as tokenizer.json states it, lower-cases text."""
    if not normalizer:
        return False
    parts = normalizer.get("normalizers", [])
    return bool(
        normalizer["type"] == "Lowercase" or normalizer.get("lowercase") or any(map(lowers, parts))
    )


def _find_specials(backend: library.Tokenizer, roles: Mapping[str, str]) -> Specials:
    found: dict[str, int] = {}
    for role, usual in SPECIAL_NAMES.items():
        names = (roles[role],) if role in roles else usual
        ids = [i for i in map(backend.token_to_id, names) if i is not None]
        if not ids:
            raise UserError(f"the tokenizer has no piece for {role}: one of {', '.join(names)}")
        found[role] = ids[0]
    return Specials(**found)
