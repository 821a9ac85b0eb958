"""Interaction histories of users as documents whose tokens are items.

A table of events becomes a data set with one document per user in each split, in the same order. A
user's last item is held out for testing and the one before for validation (leave-one-out, Sun et
al. 2019, section 4.2): ``train`` lacks both items, ``heldout`` lacks the last, ``test`` has all.
In ``heldout`` and ``test`` only the last item is predicted.
"""

import json
import math
import time as clock
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import chain
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library
from numpy.typing import NDArray
from tokenizers import models, pre_tokenizers

from bertwright.core.config import quote
from bertwright.core.errors import UserError
from bertwright.core.files import atomic_folder, require_new_folder
from bertwright.data.document import ReadCounts
from bertwright.data.holdout import HELDOUT, TRAIN
from bertwright.data.readers.sources import TextSource, find_sources
from bertwright.data.readers.tables import read_rows
from bertwright.data.shards.dataset import REPORT_FILE, Dataset
from bertwright.data.shards.writer import DatasetWriter
from bertwright.data.tokenization.boundaries import DOCUMENT_START, SENTENCE_START, WORD_START
from bertwright.data.tokenization.characters import replace_lone_surrogates
from bertwright.data.tokenization.token_cache import MAX_WORD_BYTES, EncodedDocuments
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.data.vocabulary_training import BERT_SPECIAL_TOKENS

TEST = "test"
"""Name of the split with complete histories."""

NUM_HELD_OUT_ITEMS = {TRAIN: 2, HELDOUT: 1, TEST: 0}
"""Items removed from the end of every history, by split."""

MIN_HISTORY_LENGTH = 3
"""Minimum length of a history: one item for each split."""


@dataclass(frozen=True)
class InteractionHistories:
    """The histories of all users, one after the other, each in order of time.

    ``item_ids`` (n,) are indices into ``item_codes``; ``lengths`` (users,) are the numbers of items
    of the histories.
    """

    item_codes: Sequence[str]
    item_ids: NDArray[np.int64]
    lengths: NDArray[np.int64]


def prepare_histories(
    inputs: Sequence[str | Path] | str | Path,
    output: str | Path,
    *,
    user_column: str = "user",
    item_column: str = "item",
    time_column: str = "time",
    tokenizer: Tokenizer | str | Path | None = None,
    min_events: int = 5,
    format: str | None = None,
) -> Dataset:
    """Prepare a data set from a table of events (CSV, TSV, Parquet, JSON lines).

    Users and items with fewer than ``min_events`` events in the input are dropped, then users with
    fewer than three remaining events. Times are numbers or ISO dates; events at the same time keep
    their order. Every item becomes a token, the most frequent first; with a ``tokenizer``, only its
    items do.

    Errors: UserError if a column is missing, a time is invalid, or no user is left.
    """
    started = clock.monotonic()
    output = Path(output)
    require_new_folder(output)
    inputs = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    counts = ReadCounts()
    columns = (user_column, item_column, time_column)
    sources = find_sources(inputs, user_column, format, counts)
    events = _read_events([_as_events(source, columns) for source in sources], counts)
    names = ", ".join(map(str, inputs))
    first = next(events, None)
    if first is None:
        raise UserError(f"{names}: no events found: a table has one per row, below its header")
    histories = _group_by_user(chain([first], events), min_events)
    if not len(histories.lengths):
        raise UserError(
            f"{names}: no user has {MIN_HISTORY_LENGTH} events with frequent items: lower "
            f"--min-events ({min_events})"
        )
    if tokenizer is None:
        tokenizer = item_tokenizer(histories.item_codes)
    elif not isinstance(tokenizer, Tokenizer):
        tokenizer = Tokenizer.load(tokenizer)
    if tokenizer.kind != "items":
        raise UserError(
            f"a {tokenizer.kind} tokenizer has no items: omit --tokenizer, or choose a folder that "
            f"was prepared with --item"
        )
    with (
        atomic_folder(output) as folder,
        DatasetWriter(folder, tokenizer, list(NUM_HELD_OUT_ITEMS), is_nested=True) as writer,
    ):
        for split, num_held_out in NUM_HELD_OUT_ITEMS.items():
            writer.append(split, _encode_histories(histories, tokenizer, num_held_out))
        report = writer.finish(counts.sources) | {
            "users": len(histories.lengths),
            "items": len(histories.item_codes),
            "events": len(histories.item_ids),
            "seconds": clock.monotonic() - started,
        }
        (folder / REPORT_FILE).write_text(json.dumps(report, indent=1) + "\n")
    return Dataset.open(output, is_verified=True)


def item_tokenizer(item_codes: Sequence[str]) -> Tokenizer:
    """Return a tokenizer with BERT's special tokens, then a token for each item code."""
    vocabulary = {token: index for index, token in enumerate((*BERT_SPECIAL_TOKENS, *item_codes))}
    backend = library.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(
        [library.AddedToken(name, special=True, normalized=False) for name in BERT_SPECIAL_TOKENS]
    )
    return Tokenizer(backend)


def _as_events(source: TextSource, columns: tuple[str, str, str]) -> TextSource:
    if source.format == "txt":
        raise UserError(f"{source.name} is plain text: use a table with one event per row")
    return replace(source, event_columns=columns)


def _read_events(
    sources: Sequence[TextSource], counts: ReadCounts
) -> Iterator[tuple[str, str, float]]:
    """Yield the user, item and time of every row."""
    user_spellings: dict[str, str] = {}
    item_spellings: dict[str, str] = {}
    for source in sources:
        for location, (user, item, time) in read_rows(source, counts):
            yield (
                _parse_code(user, location, "user", user_spellings),
                _parse_code(item, location, "item", item_spellings),
                _parse_time(time, location),
            )


def _parse_code(value: Any, location: str, column: str, spellings: dict[str, str]) -> str:
    """Return a code without spaces, which separate the items of a history.

    ``spellings`` holds how codes with an underscore were written, and is updated.
    """
    is_missing = value is None or (isinstance(value, float) and math.isnan(value))
    if not is_missing and not isinstance(value, str | Number):
        raise UserError(
            f"{location}: the {column} is neither text nor a number: {quote(value)}: choose "
            f"another column with --{column}"
        )
    spelling = "" if is_missing else " ".join(str(value).split())
    code = spelling.replace(" ", "_")
    if not code:
        raise UserError(f"{location} has no {column}: remove such rows")
    if not code.isascii() and code != replace_lone_surrogates(code):
        raise UserError(
            f"{location}: the {column} {code!r} holds half of a surrogate pair: use another code"
        )
    if code in BERT_SPECIAL_TOKENS:
        raise UserError(f"{location}: {code} is the name of a special token: use another code")
    if "_" in code and (other := spellings.setdefault(code, spelling)) != spelling:
        raise UserError(
            f"{location}: the {column} {spelling!r} and an earlier {other!r} have the same code, "
            f"since spaces become underscores: rename one of them"
        )
    return code


def _parse_time(value: Any, location: str) -> float:
    """Return a time as a number: the table's number, or the seconds of an ISO date."""
    if not isinstance(value, date):  # includes datetime
        with suppress(TypeError, ValueError, OverflowError):
            number = float(value)
            if math.isfinite(number):
                return number
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise UserError(
            f"{location}: {value!r} is not a time: write seconds, or a date such as "
            f"2018-09-24 14:27:30"
        ) from None
    # With local time the order would depend on the machine's time zone.
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _group_by_user(
    events: Iterable[tuple[str, str, float]], min_events: int
) -> InteractionHistories:
    """Return the histories of users, in order of first appearance."""
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    rows = [
        (users.setdefault(user, len(users)), items.setdefault(item, len(items)), time)
        for user, item, time in events
    ]
    user, item = (np.array([row[n] for row in rows], np.int64) for n in (0, 1))
    time = np.array([row[2] for row in rows], np.float64)
    user_counts, item_counts = np.bincount(user), np.bincount(item)
    kept = (user_counts[user] >= min_events) & (item_counts[item] >= min_events)
    kept &= np.bincount(user[kept], minlength=len(user_counts))[user] >= MIN_HISTORY_LENGTH
    user, item, time = user[kept], item[kept], time[kept]
    order = np.lexsort((time, user))
    by_frequency = [n for n, _ in Counter(item.tolist()).most_common()]
    new_ids = np.empty(len(items), np.int64)
    new_ids[by_frequency] = np.arange(len(by_frequency))
    codes, lengths = list(items), np.bincount(user)
    ranked = [codes[n] for n in by_frequency]
    return InteractionHistories(ranked, new_ids[item[order]], lengths[lengths > 0])


def _encode_histories(
    histories: InteractionHistories, tokenizer: Tokenizer, num_held_out: int
) -> EncodedDocuments:
    """Return the histories as token ids, without the last ``num_held_out`` items of each."""
    ids = [tokenizer.token_to_id(code) for code in histories.item_codes]
    unknown = tokenizer.special_tokens.unknown
    token_ids = np.array([unknown if n is None else n for n in ids], np.uint32)
    sizes = np.array(
        [min(len(code.encode()), MAX_WORD_BYTES) for code in histories.item_codes], np.uint16
    )
    ends = np.cumsum(histories.lengths)
    from_end = np.repeat(ends, histories.lengths) - np.arange(len(histories.item_ids))
    items, lengths = histories.item_ids[from_end > num_held_out], histories.lengths - num_held_out
    boundaries = np.full(len(items), WORD_START, np.uint8)
    boundaries[np.cumsum(lengths) - lengths] |= DOCUMENT_START | SENTENCE_START
    num_bytes = int(sizes[items].sum())
    return EncodedDocuments(token_ids[items], boundaries, sizes[items], lengths, num_bytes)
