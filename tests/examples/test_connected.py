"""Two sentences, and the connective that stood between them."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from numbered_text import CLS, FIRST_PIECE, PAD, SEP, SPECIALS, NumberedSplit

from bertwright.errors import UserError
from bertwright.examples.assembly import ConnectedPair
from bertwright.examples.coordinates import RELATIONS, Coordinates, Rows
from bertwright.examples.vocabulary import Vocabulary
from bertwright.objectives import DiscourseRelation
from bertwright.objectives.objective import Asking
from bertwright.randomness import Draw
from bertwright.text.little_data import little_data
from bertwright.text.shards import Data
from bertwright.text.tokenizers import TokenizerChoice
from bertwright.text.vocabularies import train_tokenizer

CONNECTIVES = ("but", "however,", "as", "as a result,", "never seen,")
DOCUMENTS = [
    "But the first has none. However, the rain fell. It fell, however, slowly. But it fell.",
    "The road was wet. As a result, nobody came. As he said this he left. Butter was cheap.",
    "He was late. However he came, nobody saw him. however, it rained. But",
]
JOINED = [
    ("But the first has none.", "however,", "the rain fell."),
    ("It fell, however, slowly.", "but", "it fell."),
    ("The road was wet.", "as a result,", "nobody came."),
    ("As a result, nobody came.", "as", "he said this he left."),
]
"""What a reader finds in them: not within a sentence or word, not without what follows."""


@pytest.fixture(scope="module", params=["wordpiece", "byte-bpe", "unigram"])
def data(request: pytest.FixtureRequest) -> Iterator[Data]:
    choice = TokenizerChoice.choose({"kind": request.param, "size": 400, "lowercase": False})
    with little_data(DOCUMENTS, train_tokenizer(DOCUMENTS * 9, choice)) as opened:
        yield opened


def test_all_that_a_reader_finds_is_found_in_every_kind_of_pieces(data: Data) -> None:
    split, tokenizer = data.split("train"), data.tokenizer
    source = ConnectedPair(length=64, connectives=CONNECTIVES).plan(split, tokenizer.specials, 0)
    rows = source.rows(np.arange(source.num_rows), 0)
    assert rows.relation is not None
    assert (rows.relation == RELATIONS.index("next")).all()
    segment, connective = rows.coordinates.segment, rows.coordinates.connective
    assert segment is not None
    assert connective is not None
    found = [
        (
            written(data, pieces[~special & (of == 0)]),
            CONNECTIVES[which.max()],
            written(data, pieces[~special & (of == 1)]),
        )
        for pieces, special, of, which in zip(
            rows.pieces, rows.special, segment, connective, strict=True
        )
    ]
    expected = [(solid(a), name, solid(b)) for a, name, b in JOINED]
    assert sorted(found) == sorted(expected)


def written(data: Data, pieces: Any) -> str:
    return solid(data.tokenizer.decode(pieces.tolist()))


def solid(text: str) -> str:
    return "".join(text.split())


def test_the_connective_is_taken_away_and_its_number_stands_where_it_stood() -> None:
    text = NumberedSplit.of([[[1] * 3, [1] * 4], [[1] * 2, [1] * 3, [1, 2]]])
    p = FIRST_PIECE
    names = (f"{p + 99}", f"{p + 9} {p + 10}", f"{p + 3}", f"{p + 12}")
    source = ConnectedPair(length=12, connectives=names).plan(cast(Any, text), SPECIALS, 0)
    rows = source.rows(np.arange(source.num_rows), 0)
    assert [row[row != PAD].tolist() for row in rows.pieces] == [
        [CLS, p + 7, p + 8, SEP, p + 11, SEP],
        [CLS, p, p + 1, p + 2, SEP, p + 4, p + 5, p + 6, SEP],
        [CLS, p + 9, p + 10, p + 11, SEP, p + 13, p + 14, SEP],
    ]
    connective = rows.coordinates.connective
    assert connective is not None
    places = [(4, 1), (5, 2), (5, 3)]
    for row, (place, number) in zip(connective, places, strict=True):
        assert row[place] == number
        assert (np.delete(row, place) == -1).all()
    _, question = DiscourseRelation(connectives=names).ask(rows, asking())
    assert question.where.tolist() == [0, 12, 24]
    assert question.target.tolist() == [1, 2, 3]
    assert question.weight.tolist() == [1.0] * 3


def asking() -> Asking:
    return Asking(Draw(0), Vocabulary(40, SPECIALS))


def test_of_a_long_pair_what_was_joined_stays() -> None:
    text = NumberedSplit.of([[[1] * 20, [1] * 20]])
    p = FIRST_PIECE
    pair = ConnectedPair(length=13, connectives=(f"{p + 20}", "1"))
    rows = pair.plan(cast(Any, text), SPECIALS, 0).rows(np.arange(1), 0)
    a, b = list(range(p + 15, p + 20)), list(range(p + 21, p + 26))
    assert rows.pieces[0].tolist() == [CLS, *a, SEP, *b, SEP]


def test_connectives_take_turns_and_so_do_the_pairs_of_each() -> None:
    """Eleven pairs of one connective, one of another: half of the rows each."""
    text = " ".join(
        ["A came.", *(f"But {name} came." for name in "bcdefghijkl"), "However, m came."]
    )
    tokenizer = train_tokenizer([text], TokenizerChoice.choose({"kind": "words", "size": 40}))
    pair = ConnectedPair(length=16, connectives=("however,", "indeed,", "but"))
    with little_data([text], tokenizer) as data:
        source = pair.plan(data.split("train"), tokenizer.specials, 0)
        rows = [source.rows(np.arange(source.num_rows), epoch) for epoch in range(11)]
    assert source.num_rows == 12
    times = Counter(tuple(row.tolist()) for each in rows for row in each.pieces)
    assert sorted(times.values()) == [6] * 11 + [66]


def test_text_without_connectives_is_refused() -> None:
    text = NumberedSplit.of([[[1] * 3, [1] * 3]])
    with pytest.raises(UserError, match="holds no sentence that begins with a connective, such as"):
        ConnectedPair(length=16, connectives=("7", "8")).plan(cast(Any, text), SPECIALS, 0)


def test_rows_of_another_assembly_are_refused() -> None:
    rows = Rows(np.zeros((1, 8), np.int32), Coordinates(), np.zeros((1, 8), np.bool_))
    with pytest.raises(UserError, match="needs rows of connected-pair"):
        DiscourseRelation().ask(rows, asking())


def test_a_list_needs_two_connectives_that_differ() -> None:
    for wrong, why in ((("but",), "at least 2"), (("but", "But "), "twice"), (("a", " "), "empty")):
        with pytest.raises(ValueError, match=why):
            ConnectedPair(connectives=wrong)
