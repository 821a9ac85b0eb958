"""Sequences of tokens, and the metadata of every token.

B sequences of L positions each. Padding is wherever the document id is -1.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bertwright.batches.arrays import BoolArray, Int32Array, IntArray

Relation = Literal["next", "random", "previous", "same-document", "real", "fake"]

RELATIONS: tuple[Relation, ...] = get_args(Relation)
"""Relations between the texts of a sequence.

The second of a pair: what follows the first, a random text of another document, what precedes the
first, a text elsewhere in its document. The turns of a dialogue: as they were, or with one of
another dialogue.
"""

DataRequirement = Literal[
    "translations", "languages", "histories", "dialogues", "connectives", "phrases", "capitals"
]
"""Data or annotations that not every data set has."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenInfoArrays:
    """Metadata of each token; arrays are (B, L) int32 unless noted, None where unused.

    - ``position_ids``: counted from the start of the document; None means 0 to L-1 in every
      sequence
    - ``segment_ids``: 0 for the first text of a pair, 1 for the second; in a dialogue 0 for the
      first speaker, 1 for the others; None means 0 everywhere
    - ``document_ids``: which isolated text of the sequence a token belongs to, -1 for padding; None
      means no padding and one text per sequence
    - ``word_ids``: index of the word within the sequence, -1 for special tokens and padding
    - ``sentence_ids``: index of the sentence within the sequence, -1 for special tokens and padding
    - ``factorisation_order``: rank of the position in the factorisation order of the sequence
    - ``is_query_stream``: bool, query positions behind the text, which know their position but not
      their token
    - ``language_ids``: language of the text, special tokens included; None if unknown
    - ``phrase_ids``, ``entity_ids``: number of the phrase or entity that contains the token, -1 for
      none; None if not annotated
    - ``is_capitalised``: 1 where a word begins with a capital letter, 0 where not, -1 in sequences
      without that annotation; None if none has it
    - ``occurs_elsewhere``: 1 where the token also occurs in a part of its document outside the
      sequence, 0 where not, -1 for special tokens and padding; None if unused
    - ``connective_ids``: at the first token of a second text, the number of the connective removed
      before it, -1 elsewhere; None without connectives
    - ``task_ids``: task of the sequence in multi-task pre-training; None means the first
    - ``is_backward``: 1 in sequences read from the end of the text, where positions count down;
      None if all are read forward
    """

    position_ids: Int32Array | None = None
    segment_ids: Int32Array | None = None
    document_ids: Int32Array | None = None
    word_ids: Int32Array | None = None
    sentence_ids: Int32Array | None = None
    factorisation_order: Int32Array | None = None
    is_query_stream: BoolArray | None = None
    language_ids: Int32Array | None = None
    phrase_ids: Int32Array | None = None
    entity_ids: Int32Array | None = None
    is_capitalised: Int32Array | None = None
    occurs_elsewhere: Int32Array | None = None
    connective_ids: Int32Array | None = None
    task_ids: Int32Array | None = None
    is_backward: Int32Array | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that are not None, by name."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: values for name, values in arrays.items() if values is not None}


PADDED_WITH_MINUS_ONE = frozenset(
    (
        "document_ids",
        "word_ids",
        "sentence_ids",
        "phrase_ids",
        "entity_ids",
        "occurs_elsewhere",
        "connective_ids",
    )
)
"""The fields that are -1 at padding."""


@dataclass(frozen=True, slots=True, eq=False)
class SequenceBatch:
    """Sequences of text, before or after masking.

    - ``token_ids``: (B, L) int32
    - ``is_special``: (B, L) bool, special tokens and padding, which are never masked; includes
      special tokens spelled by the text, though they are part of a word
    - ``relation``: (B,) int64 for pairs and dialogues, the index into ``RELATIONS``; None otherwise
    - ``is_truncation_boundary``: (B, L) bool, special tokens at a cut, where no text begins or
      ends; None where there are none
    """

    token_ids: Int32Array
    token_info: TokenInfoArrays
    is_special: BoolArray
    relation: IntArray | None = None
    is_truncation_boundary: BoolArray | None = None

    @property
    def is_spelled_special(self) -> BoolArray:
        """(B, L) bool: special tokens that are spelled by the text itself."""
        word_ids = self.token_info.word_ids
        return (
            np.zeros_like(self.is_special)
            if word_ids is None
            else self.is_special & (word_ids >= 0)
        )

    @property
    def is_real(self) -> BoolArray:
        """(B, L) bool: text and special tokens, not padding."""
        document_ids, is_query_stream = (
            self.token_info.document_ids,
            self.token_info.is_query_stream,
        )
        real = (
            np.ones(self.token_ids.shape, np.bool_) if document_ids is None else document_ids >= 0
        )
        return real if is_query_stream is None else real & ~is_query_stream
