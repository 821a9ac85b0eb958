"""A tokenizer of fewer pieces, which cuts all text that needs no others as it was cut before."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import tokenizers as library

from bertwright.errors import UserError
from bertwright.text.tokenizers import Tokenizer

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
"""How vocabularies of characters spell a byte."""

Settings = dict[str, Any]


def trimmed(tokenizer: Tokenizer, needed: Collection[int]) -> tuple[Tokenizer, list[int]]:
    """A tokenizer of the ``needed`` pieces and of those without which it could not go on, and the
    former number of each of its pieces, in their order.

    What is added to a vocabulary stays, and so do single characters and bytes: no text becomes
    unknown that was not, but for words or items that are not needed where those are the pieces.
    Merges stay as far as there is what they merge, and what comes of it.

    Errors: UserError for a tokenizer whose model is not one of ours.
    """
    settings = json.loads(tokenizer.backend.to_str())
    model = settings["model"]
    if model["type"] not in _KEPT:
        raise UserError(f"a tokenizer of the kind {tokenizer.kind} cannot be trimmed")
    vocabulary = tokenizer.backend.get_vocab(with_added_tokens=False)
    added = {piece["id"] for piece in settings["added_tokens"]}
    pieces = {tokenizer.piece(number) for number in needed}
    pieces |= {piece for piece in vocabulary if _is_letter(piece, model)}
    pieces = _KEPT[model["type"]](model, pieces)
    kept = added | tokenizer.specials.all
    kept |= {number for piece, number in vocabulary.items() if piece in pieces}
    former = sorted(kept)
    number = {old: new for new, old in enumerate(former)}
    _renumber_model(model, number)
    settings["added_tokens"] = [
        {**piece, "id": number[piece["id"]]} for piece in settings["added_tokens"]
    ]
    _renumber_template(settings["post_processor"], number)
    return Tokenizer(library.Tokenizer.from_str(json.dumps(settings)), tokenizer.roles), former


def _is_letter(piece: str, model: Settings) -> bool:
    """Whether a piece is one character, within a word or not, or one byte."""
    inside = model.get("continuing_subword_prefix") or ""
    last = model.get("end_of_word_suffix") or ""
    bare = piece.removeprefix(inside).removesuffix(last)
    return len(piece) == 1 or len(bare) == 1 or bool(_BYTE.fullmatch(piece))


def _with_unknown(model: Settings, pieces: set[str]) -> set[str]:
    return pieces | {model["unk_token"]}


def _with_parts(model: Settings, pieces: set[str]) -> set[str]:
    """And all that these are merged from."""
    parts: dict[str, set[str]] = {}
    for merge in _merges(model):
        parts.setdefault(_merged(model, merge), set()).update(merge)
    found, new = set[str](), pieces
    while new:
        found |= new
        new = {part for piece in new for part in parts.get(piece, ())} - found
    return found


def _with_least(model: Settings, pieces: set[str]) -> set[str]:
    """And the one that is least probable, from which that of unknown characters is counted."""
    least = min(model["vocab"], key=lambda entry: entry[1])[0]
    return pieces | {least, model["vocab"][model["unk_id"] or 0][0]}


_KEPT = {
    "WordPiece": _with_unknown,
    "WordLevel": _with_unknown,
    "BPE": _with_parts,
    "Unigram": _with_least,
}
"""What a model of pieces needs beside those that are wanted."""


def _merges(model: Settings) -> Iterable[tuple[str, str]]:
    for merge in model["merges"]:
        first, second = merge.split(" ") if isinstance(merge, str) else merge
        yield first, second


def _merged(model: Settings, merge: Sequence[str]) -> str:
    return merge[0] + merge[1].removeprefix(model.get("continuing_subword_prefix") or "")


def _renumber_model(model: Settings, number: Mapping[int, int]) -> None:
    """In place, without what has no number."""
    if model["type"] == "Unigram":
        unknown = model["unk_id"]
        model["unk_id"] = None if unknown is None else number[unknown]
        model["vocab"] = [entry for old, entry in enumerate(model["vocab"]) if old in number]
        return
    vocabulary = {piece: number[old] for piece, old in model["vocab"].items() if old in number}
    model["vocab"] = vocabulary
    if model["type"] == "BPE":
        model["merges"] = [
            [*merge]
            for merge in _merges(model)
            if vocabulary.keys() >= {*merge, _merged(model, merge)}
        ]


def _renumber_template(template: Settings | None, number: Mapping[int, int]) -> None:
    """What stands around a text, in place."""
    if template is None:
        return
    for inner in template.get("processors", []):
        _renumber_template(inner, number)
    for special in dict(template.get("special_tokens", {})).values():
        special["ids"] = [number[old] for old in special["ids"]]
    for role in ("cls", "sep"):
        if role in template:
            piece, old = template[role]
            template[role] = [piece, number[old]]
