"""What rows are told of the parts of a document that they do not hold."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from numbered_text import FIRST_PIECE, SPECIALS, NumberedSplit, documents
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.examples.assembly import Assembly
from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.examples.vocabulary import Vocabulary
from bertwright.objectives import TokenDocument
from bertwright.objectives.objective import Asking
from bertwright.randomness import Draw
from bertwright.text.occurrences import Occurrences
from bertwright.text.selected import languages_apart
from bertwright.text.shards import Turns

DIFFERENT = 5
"""Pieces: that at position p is p modulo this."""

PAIRS = {"next": 0.25, "same-document": 0.25, "random": 0.25, "previous": 0.25}
KINDS = [
    {"kind": "packed"},
    {"kind": "contiguous"},
    {"kind": "full-sentences"},
    {"kind": "doc-sentences", "packing": True},
    {"kind": "segment-pair", "second": PAIRS},
    {"kind": "sentence-pair", "second": PAIRS},
    {"kind": "dialogue"},
]


class FewPieces(NumberedSplit):
    """Text in which the same pieces come again and again, and that knows what it holds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.occurrences = Occurrences(self)
        turns = self.sentence_starts[:-1]
        self.turns = Turns(turns, (np.arange(len(turns)) % 2).astype(np.uint8))

    def pieces(self, start: int, stop: int) -> NDArray[np.int32]:
        return (np.arange(start, stop) % DIFFERENT).astype(np.int32)

    def gather(
        self, starts: NDArray[np.int64], length: int
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        numbered, marks = super().gather(starts, length)
        return (numbered - FIRST_PIECE) % DIFFERENT, marks


def rows_of(split: NumberedSplit, settings: dict[str, Any], epoch: int = 2) -> Rows | None:
    try:
        source = Assembly.choose({**settings, "length": 16}).plan(cast(Any, split), SPECIALS, 0)
    except UserError:
        return None
    return source.rows(np.arange(source.num_rows), epoch)


@given(documents)
def test_a_piece_stands_elsewhere_if_its_document_has_it_outside_the_row(text: Any) -> None:
    plain, told = NumberedSplit.of(text), FewPieces.of(text)
    plain.turns = cast(FewPieces, told).turns
    for settings in KINDS:
        numbered, rows = rows_of(plain, settings), rows_of(told, settings)
        if numbered is None or rows is None:
            assert numbered is rows is None
            continue
        assert numbered.coordinates.elsewhere is None
        elsewhere = rows.coordinates.elsewhere
        assert elsewhere is not None
        for row, special, known in zip(numbered.pieces, numbered.special, elsewhere, strict=True):
            assert known[special].tolist() == [-1] * special.sum()
            positions = (row[~special] - FIRST_PIECE).tolist()
            assert known[~special].tolist() == by_definition(plain, positions)


def by_definition(split: NumberedSplit, positions: Sequence[int]) -> list[int]:
    """For each position of a row, written out."""
    found = list[int]()
    for position in positions:
        (document,) = split.document_of(np.array([position + FIRST_PIECE]))
        whole = range(split.document_starts[document], split.document_starts[document + 1])
        others = set(whole) - set(positions)
        found.append(int(any(other % DIFFERENT == position % DIFFERENT for other in others)))
    return found


def test_one_of_a_pair_from_one_document_does_not_count_for_the_other() -> None:
    text = FewPieces.of([[[1] * 3, [1] * 3]])
    rows = rows_of(text, {"kind": "segment-pair", "second": {"next": 1.0}, "short": 0.0})
    assert rows is not None
    assert rows.coordinates.elsewhere is not None
    assert rows.coordinates.elsewhere.max() == 0  # piece 0 stands in both, and nowhere else


def test_documents_read_apart_hold_what_they_hold_together() -> None:
    whole = FewPieces.of([[[1] * 4, [1] * 3]] * 7)
    apart = languages_apart(cast(Any, whole))
    assert len(apart) == 3
    for own in apart:
        assert own.occurrences is not None
        shift = np.repeat(own._shift, np.diff(own._runs, append=own.num_pieces))
        source = np.arange(own.num_pieces).reshape(-1, 1)
        told = own.occurrences.elsewhere(source)
        assert np.array_equal(told, cast(Any, whole).occurrences.elsewhere(source + shift[:, None]))
        assert told.max() == 1


def test_every_piece_is_asked_and_no_special_token() -> None:
    rows = rows_of(FewPieces.of([[[2, 1, 3] * 4] * 5] * 3), {"kind": "doc-sentences"})
    assert rows is not None
    vocabulary = Vocabulary(DIFFERENT, SPECIALS)
    shown, question = TokenDocument().ask(rows, Asking(Draw(0), vocabulary))
    assert shown is rows
    assert question.where.tolist() == list(range(rows.pieces.size))
    assert np.array_equal(question.weight == 1.0, ~rows.special.ravel())
    assert set(question.target.tolist()) == {0, 1}
    elsewhere = cast(NDArray[np.int32], rows.coordinates.elsewhere).ravel()
    asked = question.weight > 0
    assert np.array_equal(question.target[asked], elsewhere[asked])


def test_rows_that_are_no_parts_of_documents_are_refused() -> None:
    pieces = np.zeros((2, 8), np.int32)
    rows = Rows(pieces, Coordinates(), pieces > 0)
    with pytest.raises(UserError, match="parts of documents"):
        TokenDocument().ask(rows, Asking(Draw(0), Vocabulary(DIFFERENT, SPECIALS)))
