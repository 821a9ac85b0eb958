"""Dialogues: documents of turns, each on a line of its own, with who says it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.files import json_value
from bertwright.text.documents import Document, ReadCounts, texts_of_row
from bertwright.text.marks import DOCUMENT_START
from bertwright.text.piece_cache import Encoded

MOST_SPEAKERS = 256
"""In one dialogue: who speaks is stored in a byte."""

_SAID_BY = re.compile(r"([^\s:][^:]{0,30}):\s+(.+)")
"""A turn that begins with who says it: a name of at most 31 characters, and a colon."""


def dialogue_of_value(
    value: Any, language: str | None, where: str, counts: ReadCounts
) -> Iterator[Document]:
    """The dialogue in a value of a table: a list of turns, each a text or an object that holds its
    ``text`` and perhaps its ``speaker``. Without speakers two of them take turns, unless every turn
    begins with a name and a colon.

    Nothing where it has fewer than two turns with text. Errors: UserError for any other value.
    """
    if isinstance(value, str):
        value = _from_json(value)
    if not isinstance(value, list):
        raise UserError(
            f"{where}: a dialogue is a list of turns, not {type(value).__name__}: name the column "
            f"with --dialogue-column"
        )
    said: list[Any] = value
    turns: list[str] = []
    speakers: list[Any] = []
    for number, turn in enumerate(said):
        text, speaker = _turn(turn, number, where)
        words = "\n".join(texts_of_row(text, counts)).split()
        if words:
            turns.append(" ".join(words))
            speakers.append(speaker)
    if not any(isinstance(turn, dict) and "speaker" in turn for turn in said):
        turns, speakers = _said_by(turns) or (turns, speakers)
    numbers = {speaker: number for number, speaker in enumerate(dict.fromkeys(speakers))}
    if len(numbers) > MOST_SPEAKERS:
        raise UserError(
            f"{where}: more than {MOST_SPEAKERS} people speak: cut the dialogue in parts"
        )
    if len(turns) > 1:
        spoken = tuple(numbers[speaker] for speaker in speakers)
        yield Document("\n".join(turns), language, speakers=spoken)


def joined(encoded: Encoded, documents: Sequence[Document]) -> tuple[Encoded, NDArray[np.int64]]:
    """Documents whose parts were cut into pieces one by one, put together again; the first piece of
    each turn and who speaks, (T, 2). A turn without pieces is none."""
    parts = [len(document.parts) for document in documents]
    ends = np.cumsum(encoded.document_lengths)
    begins = ends - encoded.document_lengths
    last = np.cumsum(parts) - 1
    lengths = np.diff(ends[last], prepend=0)
    starts = (ends[last] - lengths)[lengths > 0]
    marks = encoded.marks & ~np.uint8(DOCUMENT_START)
    marks[starts] |= DOCUMENT_START
    speakers = [speaker for d in documents for speaker in (d.speakers or (-1,))]
    turns = np.stack([begins, np.array(speakers, np.int64)], axis=1)
    whole = replace(encoded, marks=marks, document_lengths=lengths)
    return whole, turns[(turns[:, 1] >= 0) & (encoded.document_lengths > 0)]


def _said_by(turns: Sequence[str]) -> tuple[list[str], list[Any]] | None:
    """What was said and by whom; None unless every turn says who says it."""
    found = [said for turn in turns if (said := _SAID_BY.fullmatch(turn))]
    if len(found) < len(turns):
        return None
    return [said[2] for said in found], [said[1] for said in found]


def _turn(turn: Any, number: int, where: str) -> tuple[str, Any]:
    given: dict[str, Any] = turn if isinstance(turn, dict) else {"text": turn}
    text, speaker = given.get("text"), given.get("speaker", number % 2)
    if not isinstance(text, str) or not isinstance(speaker, str | int):
        raise UserError(
            f"{where}: turn {number + 1} is no text, nor an object with text and speaker"
        )
    return text, speaker


def _from_json(value: str) -> Any:
    try:
        return json_value(value)
    except ValueError:
        return value
