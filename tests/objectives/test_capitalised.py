"""Which places are asked for their capitals, and what of."""

import numpy as np

from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.examples.vocabulary import Vocabulary
from bertwright.objectives.capitalised import Capitalised
from bertwright.objectives.objective import Asking
from bertwright.randomness import Draw
from bertwright.text.tokenizers import Specials


def test_words_of_which_nobody_said_are_not_asked() -> None:
    """The first row is of text whose capitals are known, the second, in the same batch, is not."""
    word = np.array([[-1, 0, 0, 1, -1], [-1, 0, 1, 1, -1]], np.int32)
    capital = np.array([[0, 1, 0, 0, 0], [-1] * 5], np.int32)
    rows = Rows(np.full((2, 5), 7, np.int32), Coordinates(word=word, capital=capital), word < 0)
    specials = Specials(pad=0, unknown=1, start=2, end=3, mask=4)
    _, question = Capitalised().ask(rows, Asking(Draw(0), Vocabulary(9, specials)))
    assert np.flatnonzero(question.weight).tolist() == [1, 3]
    assert question.target[question.weight > 0].tolist() == [1, 0]
    assert question.target.min() == 0
