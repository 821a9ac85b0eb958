"""Histories: what users have dealt with, in the order of time, as documents whose pieces are items.

A table of events becomes a data set in which every user is a document of each split, the users in
the same order. The last item of a user is kept for the test and the one before it for validation
(leave-one-out, Sun et al. 2019, section 4.2): ``train`` holds histories without both, ``heldout``
without the last, ``test`` whole ones; of the last two nothing but the last item is asked for.
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
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library
from numpy.typing import NDArray
from tokenizers import models, pre_tokenizers

from bertwright.errors import UserError
from bertwright.files import atomic_folder, require_free
from bertwright.text.characters import healed
from bertwright.text.data_writing import DataWriter
from bertwright.text.documents import ReadCounts
from bertwright.text.marks import DOCUMENT_START, SENTENCE_START, WORD_START
from bertwright.text.piece_cache import Encoded
from bertwright.text.readers import read_rows
from bertwright.text.shards import REPORT, Data
from bertwright.text.sources import Source, find_sources
from bertwright.text.splitting import HELDOUT, TRAIN
from bertwright.text.tokenizers import Tokenizer
from bertwright.text.vocabularies import BERT_SPECIALS

TEST = "test"
"""The split of whole histories."""

SPLITS = {TRAIN: 2, HELDOUT: 1, TEST: 0}
"""How many items are missing at the end of every history."""

SHORTEST = 3
"""A history with one item for each split."""


@dataclass(frozen=True)
class Histories:
    """The histories of users: ``items`` (n,) numbers of ``codes``, one user after the other, each
    in the order of time; ``lengths`` (users,)."""

    codes: Sequence[str]
    items: NDArray[np.int64]
    lengths: NDArray[np.int64]


def prepare_histories(
    inputs: Sequence[str | Path] | str | Path,
    out: str | Path,
    *,
    user: str = "user",
    item: str = "item",
    time: str = "time",
    tokenizer: Tokenizer | str | Path | None = None,
    least: int = 5,
    format: str | None = None,
) -> Data:
    """Make a data set of a table of events (CSV, TSV, Parquet, JSON lines) with these columns.

    Users and items with fewer than ``least`` events are left out, counted once before anything is;
    so are users of whom fewer than three are left. ``time`` holds numbers or ISO dates; events of
    one moment keep the order of the table. Every item becomes a piece, the most frequent first;
    with a ``tokenizer`` the items are those that it knows.

    Errors: UserError for columns that are not there, a time that is none, and where nobody is left.
    """
    started = clock.monotonic()
    out = Path(out)
    require_free(out)
    inputs = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    met = ReadCounts()
    found = find_sources(inputs, user, format, met)
    events = _events([_of_events(s, (user, item, time)) for s in found], met)
    names = ", ".join(map(str, inputs))
    first = next(events, None)
    if first is None:
        raise UserError(f"{names}: no events found: a table has one in a row, below its header")
    histories = _histories(chain([first], events), least)
    if not len(histories.lengths):
        raise UserError(
            f"{names}: no user has {SHORTEST} events with items that count: lower --least ({least})"
        )
    if tokenizer is None:
        tokenizer = item_tokenizer(histories.codes)
    elif not isinstance(tokenizer, Tokenizer):
        tokenizer = Tokenizer.load(tokenizer)
    if tokenizer.kind != "items":
        raise UserError(
            f"a {tokenizer.kind} tokenizer knows no items: leave --tokenizer out, or name a folder "
            f"that was prepared with --item"
        )
    with (
        atomic_folder(out) as folder,
        DataWriter(folder, tokenizer, list(SPLITS), nested=True) as writing,
    ):
        for split, missing in SPLITS.items():
            writing.append(split, _encoded(histories, tokenizer, missing))
        report = writing.finish(met.sources) | {
            "users": len(histories.lengths),
            "items": len(histories.codes),
            "events": len(histories.items),
            "seconds": clock.monotonic() - started,
        }
        (folder / REPORT).write_text(json.dumps(report, indent=1) + "\n")
    return Data.open(out)


def item_tokenizer(codes: Sequence[str]) -> Tokenizer:
    """A piece for each code, behind the special ones of BERT."""
    vocabulary = {piece: number for number, piece in enumerate((*BERT_SPECIALS, *codes))}
    backend = library.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(
        [library.AddedToken(name, special=True, normalized=False) for name in BERT_SPECIALS]
    )
    return Tokenizer(backend)


def _of_events(source: Source, columns: tuple[str, str, str]) -> Source:
    if source.format == "txt":
        raise UserError(f"{source.name} is plain text: events stand in a table, one in a row")
    return replace(source, of_event=columns)


def _events(sources: Sequence[Source], met: ReadCounts) -> Iterator[tuple[str, str, float]]:
    """User, item and time of every row."""
    for source in sources:
        for where, (user, item, time) in read_rows(source, met):
            yield _code(user, where, "user"), _code(item, where, "item"), _moment(time, where)


def _code(value: Any, where: str, what: str) -> str:
    code = "_".join(str(value).split()) if value is not None else ""
    if not code:
        raise UserError(f"{where} has no {what}: leave such rows out")
    if not code.isascii() and code != healed(code):
        raise UserError(
            f"{where}: the {what} {code!r} holds half of a surrogate pair: give it another code"
        )
    if code in BERT_SPECIALS:
        raise UserError(f"{where}: {code} is the name of a special piece: give it another code")
    return code


def _moment(value: Any, where: str) -> float:
    """Seconds, or whatever the numbers of a table count."""
    if not isinstance(value, date):  # nor a datetime, which is one
        with suppress(TypeError, ValueError, OverflowError):
            number = float(value)
            if math.isfinite(number):
                return number
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise UserError(
            f"{where}: {value!r} is no time: write seconds, or a date as 2018-09-24 14:27:30"
        ) from None
    # By the clock of the machine the order would be another in another time zone.
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _histories(events: Iterable[tuple[str, str, float]], least: int) -> Histories:
    """Events by user, in the order in which users first come."""
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    rows = [
        (users.setdefault(user, len(users)), items.setdefault(item, len(items)), time)
        for user, item, time in events
    ]
    user, item = (np.array([row[n] for row in rows], np.int64) for n in (0, 1))
    time = np.array([row[2] for row in rows], np.float64)
    of_user, of_item = np.bincount(user), np.bincount(item)
    kept = (of_user[user] >= least) & (of_item[item] >= least)
    kept &= np.bincount(user[kept], minlength=len(of_user))[user] >= SHORTEST
    user, item, time = user[kept], item[kept], time[kept]
    order = np.lexsort((time, user))
    codes = list(items)
    counted: Counter[int] = Counter(item.tolist())
    ranked = [codes[n] for n, _ in counted.most_common()]
    number = {code: n for n, code in enumerate(ranked)}
    renamed = np.array([number.get(code, -1) for code in codes], np.int64)
    lengths = np.bincount(user)
    return Histories(ranked, renamed[item[order]], lengths[lengths > 0])


def _encoded(histories: Histories, tokenizer: Tokenizer, missing: int) -> Encoded:
    """The histories as pieces, without the last ``missing`` of each."""
    known = [tokenizer.id(code) for code in histories.codes]
    unknown = tokenizer.specials.unknown
    piece = np.array([unknown if n is None else n for n in known], np.uint32)
    size = np.array([len(code.encode()) for code in histories.codes], np.uint16)
    ends = np.cumsum(histories.lengths)
    from_end = np.repeat(ends, histories.lengths) - np.arange(len(histories.items))
    items, lengths = histories.items[from_end > missing], histories.lengths - missing
    marks = np.full(len(items), WORD_START, np.uint8)
    marks[np.cumsum(lengths) - lengths] |= DOCUMENT_START | SENTENCE_START
    return Encoded(piece[items], marks, size[items], lengths, int(size[items].sum()))
