"""Token and document: does this piece stand elsewhere in it? (Sun et al. 2019b, section 4.2.1)."""

from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np

from bertwright.errors import UserError
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question

from .class_question import ClassQuestion
from .objective import Asking


class TokenDocument(ClassQuestion):
    """Ask every piece of a text whether it also stands in another part of its document: a piece
    that does is common, or tells what the document is about.

    The paper asks about "other segments of the document" and leaves open what a segment is. Here
    other parts are all that the row does not hold: of a pair from one document neither text counts
    for the other, so that the answer cannot be read off the row. Of a document that is in the row
    as a whole, nothing stands elsewhere. Every piece is asked, those within a word too; special
    tokens are not.
    """

    kind: Literal["token-document"] = "token-document"

    reads_documents: ClassVar[bool] = True

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        elsewhere = rows.coordinates.elsewhere
        if elsewhere is None:
            raise UserError(
                "objectives.token-document needs rows that are parts of documents: choose another "
                "assembly, such as segment-pair or doc-sentences"
            )
        known = elsewhere.ravel()
        where = np.arange(known.size, dtype=np.int64)
        target = np.maximum(known, 0).astype(np.int64)
        return rows, Question(where, target, (known >= 0).astype(np.float32))

    def num_choices(self, vocabulary_size: int) -> int:
        return 2

    def name_choice(self, choice: int, piece: Callable[[int], str]) -> str:
        return ("only here", "elsewhere too")[choice]
