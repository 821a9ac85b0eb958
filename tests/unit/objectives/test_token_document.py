"""Tokens that also occur in their document outside the sequence."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from bertwright.batches.formats import InputFormat
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from bertwright.data.shards.dataset import DialogueTurns
from bertwright.data.shards.occurrences import TokenOccurrences
from bertwright.data.shards.subset import split_by_language
from bertwright.objectives.objective import MaskingContext
from bertwright.objectives.token_document import TokenDocumentRelation
from numbered_text import FIRST_TOKEN, SPECIALS, NumberedSplit, documents

NUM_DISTINCT = 5
"""The token at position p is p modulo this."""

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


class RepeatedTokens(NumberedSplit):
    """A split of repeated tokens, with occurrences."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.occurrences = TokenOccurrences(self)
        turns = self.sentence_starts[:-1]
        self.turns = DialogueTurns(turns, (np.arange(len(turns)) % 2).astype(np.uint8))

    def token_ids(self, start: int, stop: int) -> NDArray[np.int32]:
        return (np.arange(start, stop) % NUM_DISTINCT).astype(np.int32)

    def gather(
        self, starts: NDArray[np.int64], length: int
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        numbered, boundaries = super().gather(starts, length)
        return (numbered - FIRST_TOKEN) % NUM_DISTINCT, boundaries


def format_batch(
    split: NumberedSplit, settings: dict[str, Any], epoch: int = 2
) -> SequenceBatch | None:
    try:
        source = InputFormat.parse({**settings, "length": 16}).plan(cast(Any, split), SPECIALS, 0)
    except UserError:
        return None
    return source.sequences(np.arange(source.num_sequences), epoch)


@given(documents)
def test_token_occurs_elsewhere_in_its_document(text: Any) -> None:
    plain, repeated = NumberedSplit.of(text), RepeatedTokens.of(text)
    plain.turns = cast(RepeatedTokens, repeated).turns
    for settings in KINDS:
        numbered, batch = format_batch(plain, settings), format_batch(repeated, settings)
        if numbered is None or batch is None:
            assert numbered is batch is None
            continue
        assert numbered.token_info.occurs_elsewhere is None
        occurs_elsewhere = batch.token_info.occurs_elsewhere
        assert occurs_elsewhere is not None
        for token_ids, is_special, flags in zip(
            numbered.token_ids, numbered.is_special, occurs_elsewhere, strict=True
        ):
            assert flags[is_special].tolist() == [-1] * is_special.sum()
            positions = (token_ids[~is_special] - FIRST_TOKEN).tolist()
            assert flags[~is_special].tolist() == expected_flags(plain, positions)


def expected_flags(split: NumberedSplit, positions: Sequence[int]) -> list[int]:
    """Return the definition of ``occurs_elsewhere`` for each stream position of a sequence."""
    result = list[int]()
    for position in positions:
        (document,) = split.document_of(np.array([position + FIRST_TOKEN]))
        stream = range(split.document_starts[document], split.document_starts[document + 1])
        others = set(stream) - set(positions)
        result.append(int(any(other % NUM_DISTINCT == position % NUM_DISTINCT for other in others)))
    return result


def test_texts_of_a_pair_do_not_count_for_each_other() -> None:
    text = RepeatedTokens.of([[[1] * 3, [1] * 3]])
    batch = format_batch(text, {"kind": "segment-pair", "second": {"next": 1.0}, "short": 0.0})
    assert batch is not None
    assert batch.token_info.occurs_elsewhere is not None
    assert batch.token_info.occurs_elsewhere.max() == 0  # token 0 is in both, and nowhere else


def test_splits_by_language_keep_occurrences() -> None:
    split = RepeatedTokens.of([[[1] * 4, [1] * 3]] * 7)
    parts = split_by_language(cast(Any, split))
    assert len(parts) == 3
    for part in parts:
        assert part.occurrences is not None
        shift = np.repeat(part._shift, np.diff(part._run_starts, append=part.num_tokens))
        source = np.arange(part.num_tokens).reshape(-1, 1)
        repeated = part.occurrences.occurs_elsewhere(source)
        assert np.array_equal(
            repeated, cast(Any, split).occurrences.occurs_elsewhere(source + shift[:, None])
        )
        assert repeated.max() == 1


def test_targets_are_all_text_tokens() -> None:
    batch = format_batch(RepeatedTokens.of([[[2, 1, 3] * 4] * 5] * 3), {"kind": "doc-sentences"})
    assert batch is not None
    vocabulary = Vocabulary(NUM_DISTINCT, SPECIALS)
    unchanged, targets = TokenDocumentRelation().make_targets(
        batch, MaskingContext(CounterRng(0), vocabulary)
    )
    assert unchanged is batch
    assert targets.positions.tolist() == list(range(batch.token_ids.size))
    assert np.array_equal(targets.weights == 1.0, ~batch.is_special.ravel())
    assert set(targets.labels.tolist()) == {0, 1}
    occurs_elsewhere = cast(NDArray[np.int32], batch.token_info.occurs_elsewhere).ravel()
    is_target = targets.weights > 0
    assert np.array_equal(targets.labels[is_target], occurs_elsewhere[is_target])


def test_sequences_without_documents_are_an_error() -> None:
    token_ids = np.zeros((2, 8), np.int32)
    batch = SequenceBatch(token_ids, TokenInfoArrays(), token_ids > 0)
    with pytest.raises(UserError, match="parts of documents"):
        TokenDocumentRelation().make_targets(
            batch, MaskingContext(CounterRng(0), Vocabulary(NUM_DISTINCT, SPECIALS))
        )
