"""A text is read, and then told again."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from numbered_text import SPECIALS, NumberedSplit, documents

from bertwright.errors import UserError
from bertwright.examples.assembly import Assembly
from bertwright.examples.repeating import repeat
from bertwright.examples.vocabulary import Vocabulary
from bertwright.recipes import Recipe

VOCABULARY = Vocabulary(1000, SPECIALS)


@given(documents, some.integers(8, 25), some.sampled_from(["doc-sentences", "full-sentences"]))
def test_what_is_told_is_the_first_text_that_was_read(text: Any, length: int, kind: str) -> None:
    source = Assembly.choose({"kind": kind, "length": length}).plan(
        NumberedSplit.of(text), SPECIALS, 0
    )
    rows = source.rows(np.arange(source.num_rows), 0)
    shown, question = repeat(rows, False, VOCABULARY)
    turned, same_question = repeat(rows, True, VOCABULARY)
    assert (question.where == same_question.where).all()
    for row, pieces in enumerate(shown.pieces):
        document = rows.coordinates.document
        size = length if document is None else int((document[row] == document[row, 0]).sum())
        size = min(size, length // 2)
        first = rows.pieces[row, :size].tolist()
        padding = [SPECIALS.pad] * (length - 2 * size)
        assert pieces.tolist() == [*first, *first, *padding]
        assert turned.pieces[row].tolist() == [*reversed(first), *first, *padding]
        assert shown.real[row].tolist() == [True] * 2 * size + [False] * len(padding)
        mine = (question.where // length == row) & (question.weight > 0)
        assert (question.where[mine] % length).tolist() == list(range(size, 2 * size - 1))
        assert question.target[mine].tolist() == same_question.target[mine].tolist() == first[1:]


def test_it_is_asked_alone() -> None:

    with pytest.raises(UserError, match="autoencoding tells rows of its own"):
        Recipe.load("lstm-autoencoder-tiny", "objectives.causal={}")
