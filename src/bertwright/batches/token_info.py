"""Sequences of tokens, and the metadata of every token.

A batch has B sequences of L positions. Positions with document id -1 are padding.
"""

from dataclasses import dataclass, field, fields
from typing import Any, Generic, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from bertwright.batches.arrays import BoolArray, Int32Array, IntArray

Relation = Literal["next", "random", "previous", "same-document", "real", "fake"]

RELATIONS: tuple[Relation, ...] = get_args(Relation)
"""Relations between the texts of a sequence.

In a pair, the second text follows the first, is a random text of another document, precedes the
first, or comes from elsewhere in the same document. In a dialogue, the turns are unchanged, or one
comes from another dialogue.
"""

DataRequirement = Literal[
    "translations", "languages", "histories", "dialogues", "connectives", "phrases", "capitals"
]
"""Data or annotations that not every data set has."""


ArrayT = TypeVar("ArrayT")


ENCODER_INPUT = {"is_encoder_input": True}
"""Field metadata that marks the fields that the encoder reads."""

MINUS_ONE = {"padding": -1}
"""Field metadata that marks the fields that are -1 at padding; others are 0 there."""


@dataclass(frozen=True, slots=True, eq=False)
class BaseTokenInfo(Generic[ArrayT]):
    """Metadata of each token, in NumPy arrays or tensors.

    Arrays are (B, L), int32 in NumPy and int64 as tensors unless noted, and None if unused. The
    encoder reads only some of them; the others are annotations for masking and targets.

    - ``index``: index in the sequence, broadcastable to (B, L); None in NumPy
    - ``position_ids``: position, counted from the start of the document; None means 0 to L-1 in
      every sequence
    - ``segment_ids``: 0 for the first text of a pair, 1 for the second; in a dialogue 0 for the
      first speaker, 1 for all others; None means 0 everywhere
    - ``document_ids``: index of the isolated text that a token belongs to, -1 for padding; None
      means no padding and one text per sequence
    - ``word_ids``: index of the word in the sequence, -1 for special tokens and padding
    - ``sentence_ids``: index of the sentence in the sequence, -1 for special tokens and padding
    - ``factorisation_order``: rank of the position in the factorisation order of the sequence
    - ``is_query_stream``: bool, True for query tokens (XLNet), which have a position but no
      content; they come last in the sequence, and no token attends to them
    - ``language_ids``: language of the text, special tokens included; None if unknown, which means
      the first language
    - ``phrase_ids``, ``entity_ids``: index of the phrase or entity that contains the token, -1 for
      none; None if not annotated
    - ``is_capitalised``: 1 if the word of the token begins with a capital letter, 0 if not, -1 in
      sequences without this annotation; None if no sequence has it
    - ``occurs_elsewhere``: 1 if the token also occurs in its document outside the sequence, 0 if
      not, -1 for special tokens and padding; None if unused
    - ``connective_ids``: at the first token of a second text, the index of the connective that was
      removed before it; -1 elsewhere; None without connectives
    - ``task_ids``: task of the sequence in multi-task pre-training; None means the first
    - ``is_backward``: bool, True in sequences that are read from the end of the text, with
      positions counting down; each holds one text; None if all are read forward
    - ``text_lengths``: number of real tokens of the token's text; a new text begins wherever the
      position is 0; see ``TokenInfo.with_text_lengths``
    """

    index: ArrayT | None = field(default=None, metadata=ENCODER_INPUT)
    position_ids: ArrayT | None = field(default=None, metadata=ENCODER_INPUT)
    segment_ids: ArrayT | None = field(default=None, metadata=ENCODER_INPUT)
    document_ids: ArrayT | None = field(default=None, metadata=ENCODER_INPUT | MINUS_ONE)
    word_ids: ArrayT | None = field(default=None, metadata=MINUS_ONE)
    sentence_ids: ArrayT | None = field(default=None, metadata=MINUS_ONE)
    factorisation_order: ArrayT | None = field(default=None, metadata=ENCODER_INPUT)
    is_query_stream: ArrayT | None = field(default=None, metadata=ENCODER_INPUT)
    language_ids: ArrayT | None = field(default=None, metadata=ENCODER_INPUT)
    phrase_ids: ArrayT | None = field(default=None, metadata=MINUS_ONE)
    entity_ids: ArrayT | None = field(default=None, metadata=MINUS_ONE)
    is_capitalised: ArrayT | None = None
    occurs_elsewhere: ArrayT | None = field(default=None, metadata=MINUS_ONE)
    connective_ids: ArrayT | None = field(default=None, metadata=MINUS_ONE)
    task_ids: ArrayT | None = field(default=None, metadata=ENCODER_INPUT)
    is_backward: ArrayT | None = field(default=None, metadata=ENCODER_INPUT)
    text_lengths: ArrayT | None = field(default=None, metadata=ENCODER_INPUT)

    def arrays(self) -> dict[str, ArrayT]:
        """Return the arrays that are not None, by name."""
        arrays = {name: getattr(self, name) for name in TOKEN_INFO_FIELDS}
        return {name: values for name, values in arrays.items() if values is not None}

    def encoder_inputs(self) -> dict[str, ArrayT]:
        """Return the arrays that the encoder reads, by name."""
        inputs = {name for name, data in TOKEN_INFO_FIELDS.items() if data.get("is_encoder_input")}
        return {name: values for name, values in self.arrays().items() if name in inputs}

    def annotations(self) -> dict[str, ArrayT]:
        """Return the arrays that the encoder does not read, by name."""
        inputs = self.encoder_inputs()
        return {name: values for name, values in self.arrays().items() if name not in inputs}


TOKEN_INFO_FIELDS = {field.name: field.metadata for field in fields(BaseTokenInfo)}
"""Names and metadata of all arrays."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenInfoArrays(BaseTokenInfo[NDArray[Any]]):
    """Metadata of each token in NumPy arrays."""

    def gather(self, source_positions: IntArray) -> "TokenInfoArrays":
        """Return the metadata of the tokens at ``source_positions`` (B, L'); -1 is padding."""
        is_padding, source = source_positions < 0, np.maximum(source_positions, 0)
        gathered = {
            name: np.where(
                is_padding,
                values.dtype.type(TOKEN_INFO_FIELDS[name].get("padding", 0)),
                np.take_along_axis(values, source, axis=1),
            )
            for name, values in self.arrays().items()
        }
        return TokenInfoArrays(**gathered)


def positions_in_document(document_ids: Int32Array) -> Int32Array:
    """Return positions (B, L), counted from the start of each document; 0 for padding."""
    columns = np.arange(document_ids.shape[1], dtype=np.int32)
    is_start = np.diff(document_ids, axis=1, prepend=-2) != 0
    starts = np.maximum.accumulate(np.where(is_start, columns, np.int32(0)), axis=1)
    return np.where(document_ids >= 0, columns - starts, np.int32(0))


@dataclass(frozen=True, slots=True, eq=False)
class SequenceBatch:
    """Sequences of text, before or after masking.

    - ``token_ids``: (B, L) int32
    - ``is_special``: (B, L) bool, special tokens and padding, which are never masked; includes
      special tokens spelled out in the text, although they are part of a word
    - ``relation``: (B,) int64, index into ``RELATIONS`` for pairs and dialogues; None otherwise
    - ``is_truncation_boundary``: (B, L) bool, special tokens where the text is cut, so no text
      begins or ends there; None if there are none
    """

    token_ids: Int32Array
    token_info: TokenInfoArrays
    is_special: BoolArray
    relation: IntArray | None = None
    is_truncation_boundary: BoolArray | None = None

    @property
    def is_spelled_special(self) -> BoolArray:
        """Return which tokens are special tokens spelled out in the text, (B, L) bool."""
        word_ids = self.token_info.word_ids
        return self.is_special & (False if word_ids is None else word_ids >= 0)

    @property
    def is_real(self) -> BoolArray:
        """Return which tokens are text or special tokens, not padding, (B, L) bool."""
        is_real, info = np.ones(self.token_ids.shape, np.bool_), self.token_info
        if info.document_ids is not None:
            is_real = info.document_ids >= 0
        return is_real if info.is_query_stream is None else is_real & ~info.is_query_stream
