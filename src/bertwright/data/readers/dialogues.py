"""Dialogues: documents with one turn per line and a speaker for each turn."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.core.errors import UserError
from bertwright.core.files import loads_json
from bertwright.data.document import Document, ReadCounts, split_long_text
from bertwright.data.tokenization.boundaries import DOCUMENT_START
from bertwright.data.tokenization.token_cache import EncodedDocuments

MAX_SPEAKERS = 256
"""Maximum speakers of a dialogue; a speaker is stored as one byte."""

_SPEAKER_PREFIX = re.compile(r"([^\s:][^:]{0,30}):\s+(.+)")
"""A turn that begins with its speaker: a name of at most 31 characters and a colon."""


def parse_dialogue(
    value: Any, language: str | None, location: str, counts: ReadCounts
) -> Iterator[Document]:
    """Yield the dialogue in a table cell, if it has at least two turns with text.

    The cell is a list of turns: texts, or objects with ``text`` and optional ``speaker``, which may
    be null. If no speakers are stated, they are read from the turns if every turn begins with a
    name and a colon; otherwise two speakers alternate. Errors: UserError for other values.
    """
    if isinstance(value, str):
        value = _parse_json_or_text(value)
    if not isinstance(value, list):
        raise UserError(
            f"{location}: a dialogue is a list of turns, not {type(value).__name__}: set the "
            f"column with --dialogue-column"
        )
    items: list[Any] = value
    turns: list[str] = []
    speakers: list[Any] = []
    for index, item in enumerate(items):
        text, speaker = _parse_turn(item, index, location)
        words = "\n".join(split_long_text(text, counts)).split()
        if words:
            turns.append(" ".join(words))
            speakers.append(speaker)
    if not any(_speaker_of(item) is not None for item in items):
        turns, speakers = _parse_speaker_prefixes(turns) or (turns, speakers)
    speaker_ids = {speaker: index for index, speaker in enumerate(dict.fromkeys(speakers))}
    if len(speaker_ids) > MAX_SPEAKERS:
        raise UserError(f"{location}: more than {MAX_SPEAKERS} speakers: split the dialogue")
    if len(turns) > 1:
        ids = tuple(speaker_ids[speaker] for speaker in speakers)
        yield Document("\n".join(turns), language, speakers=ids)


def join_turns(
    encoded: EncodedDocuments, documents: Sequence[Document]
) -> tuple[EncodedDocuments, NDArray[np.int64]]:
    """Join separately encoded turns into documents.

    Return the documents, and an array (T, 2) with the first token and the speaker of each turn.
    Turns without tokens are dropped.
    """
    parts = [len(document.parts) for document in documents]
    ends = np.cumsum(encoded.document_lengths)
    begins = ends - encoded.document_lengths
    last = np.cumsum(parts) - 1
    lengths = np.diff(ends[last], prepend=0)
    starts = (ends[last] - lengths)[lengths > 0]
    boundaries = encoded.boundaries & ~np.uint8(DOCUMENT_START)
    boundaries[starts] |= DOCUMENT_START
    speakers = [speaker for d in documents for speaker in (d.speakers or (-1,))]
    turns = np.stack([begins, np.array(speakers, np.int64)], axis=1)
    joined = replace(encoded, boundaries=boundaries, document_lengths=lengths)
    return joined, turns[(turns[:, 1] >= 0) & (encoded.document_lengths > 0)]


def _parse_speaker_prefixes(turns: Sequence[str]) -> tuple[list[str], list[Any]] | None:
    """Return texts and speakers; None unless every turn begins with its speaker."""
    matches = [match for turn in turns if (match := _SPEAKER_PREFIX.fullmatch(turn))]
    if len(matches) < len(turns):
        return None
    return [match[2] for match in matches], [match[1] for match in matches]


def _speaker_of(turn: Any) -> Any:
    """Return the stated speaker of a turn; None if there is none."""
    return turn.get("speaker") if isinstance(turn, dict) else None


def _parse_turn(turn: Any, index: int, location: str) -> tuple[str, Any]:
    text, speaker = turn.get("text") if isinstance(turn, dict) else turn, _speaker_of(turn)
    speaker = index % 2 if speaker is None else speaker
    if not isinstance(text, str) or not isinstance(speaker, str | int):
        raise UserError(
            f"{location}: turn {index + 1} is neither text nor an object with text and speaker"
        )
    return text, speaker


def _parse_json_or_text(value: str) -> Any:
    try:
        return loads_json(value)
    except ValueError:
        return value
