"""The sequences that a step of a mixture reads."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from bertwright.batches.formats import InputFormat, MixedSequences
from bertwright.batches.formats.mixture import _integer_quotas, merge_batches
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.core.errors import UserError
from numbered_text import plan_text

# Documents alternate between three languages: long in the first, short in the last.
TEXT = [[[1] * size] for _ in range(20) for size in (40, 9, 3)]


def plan_mixture(**settings: Any) -> MixedSequences:
    settings_with_defaults = {
        "kind": "mixture",
        "length": 16,
        "parts": {"text": {"kind": "doc-sentences"}},
    }
    source, _ = plan_text(InputFormat.parse(settings_with_defaults | settings), TEXT)
    assert isinstance(source, MixedSequences)
    return source


def sources_of(source: MixedSequences, index: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.searchsorted(source.bounds, index, side="right") - 1


def read_indices(source: MixedSequences, first: int, sequence: int) -> list[tuple[int, int]]:
    index, epoch = source.indices_at_step(0, 0, first, np.arange(sequence), sequence)
    return list(zip(index.tolist(), epoch.tolist(), strict=True))


def test_mixture_forwards_requirements_and_evaluation() -> None:
    parts = {"users": {"kind": "item-history"}, "pairs": {"kind": "connected-pair"}}
    mixture = InputFormat.parse({"kind": "mixture", "length": 16, "parts": parts})
    assert mixture.data_requirements == {"histories", "connectives"}
    users = mixture.for_evaluation.parts["users"]
    assert users == mixture.parts["users"].for_evaluation != mixture.parts["users"]


def test_exponent_one_reads_every_sequence_once_per_epoch() -> None:
    source = plan_mixture(alpha=1.0)
    for epoch in range(3):
        batch = read_indices(source, epoch * source.num_sequences, source.num_sequences)
        assert sorted(batch) == [(index, epoch) for index in range(source.num_sequences)]
    assert read_indices(source, 0, 20) != sorted(read_indices(source, 0, 20))


def test_languages_are_sampled_by_smoothed_fractions() -> None:
    source = plan_mixture(alpha=0.5)
    sizes = np.diff(source.bounds).astype(np.float64)
    p = sizes / sizes.sum()
    q = p**0.5 / (p**0.5).sum()
    assert np.abs(source.weights - q).max() < 1e-9
    index, _ = zip(*read_indices(source, 0, source.num_sequences), strict=True)
    counts = np.bincount(sources_of(source, np.array(index)), minlength=len(q))
    assert np.abs(counts - source.num_sequences * q).max() < 1.0


def test_languages_are_read_epoch_by_epoch() -> None:
    source = plan_mixture(alpha=0.0)
    batch = read_indices(source, 0, 10 * source.num_sequences)
    for language in range(len(source.sources)):
        first, end = source.bounds[language : language + 2].tolist()
        times = Counter(index for index, _ in batch if first <= index < end)
        assert len(times) == end - first
        assert max(times.values()) - min(times.values()) <= 2
    assert len(set(batch)) == len(batch)


def test_indices_do_not_depend_on_micro_batches() -> None:
    for alike in (False, True):
        source = plan_mixture(alpha=0.5, alike=alike)
        for step in (0, 3, 12_345):
            full = source.indices_at_step(7, step, 8 * step, np.arange(8), 8)
            cuts = (np.arange(3), np.arange(3, 8))
            parts = [source.indices_at_step(7, step, 8 * step, cut, 8) for cut in cuts]
            for source_id, (a, b) in zip(full, zip(*parts, strict=True), strict=True):
                assert source_id.tolist() == [*a.tolist(), *b.tolist()]


def test_one_source_per_step() -> None:
    pairs = {"kind": "translation-pair"}
    parts = {"text": {"kind": "doc-sentences"}, "pairs": pairs}
    source = plan_mixture(alpha=0.5, alike=True, parts=parts, weights={"text": 3, "pairs": 1})
    sources: list[int] = []
    visited: set[tuple[int, int]] = set()
    for step in range(2000):
        index, epoch = source.indices_at_step(0, step, 8 * step, np.arange(8), 8)
        (source_id,) = set(sources_of(source, index).tolist())
        sources.append(source_id)
        visited |= set(zip(index.tolist(), epoch.tolist(), strict=True))
        batch = source.sequences(index, epoch)
        assert len(set(batch.token_info.language_ids[batch.is_special == 0].tolist())) <= 2
    assert len(visited) == 8 * 2000
    is_pair = np.array(["-" in source.labels[sequence] for sequence in sources])
    assert is_pair.mean() == pytest.approx(0.25, abs=0.03)
    assert set(sources) == set(range(len(source.sources)))


def test_mixed_batch_equals_separate_sequences() -> None:
    parts = {
        "packed": {"kind": "packed"},
        "streams": {"kind": "packed", "isolated": False},
        "pairs": {"kind": "segment-pair"},
    }
    source = plan_mixture(parts=parts)
    index = np.array([source.bounds[2] + 1, 0, source.bounds[1], source.bounds[2], 3])
    epoch = np.array([0, 2, 1, 4, 0])
    merged = source.sequences(index, epoch)
    for i, (sequence, sequence_epoch) in enumerate(zip(index, epoch, strict=True)):
        source_id = int(sources_of(source, np.array([sequence]))[0])
        separate = source.sources[source_id].sequences(
            np.array([sequence - source.bounds[source_id]]), int(sequence_epoch)
        )
        assert merged.token_ids[i].tolist() == separate.token_ids[0].tolist()
        assert merged.is_special[i].tolist() == separate.is_special[0].tolist()
        for name in (
            "position_ids",
            "segment_ids",
            "document_ids",
            "word_ids",
            "sentence_ids",
            "language_ids",
        ):
            values = getattr(separate.token_info, name)
            missing = {"position_ids": list(range(16)), "segment_ids": [0] * 16}
            expected = missing[name] if values is None else values[0].tolist()
            assert getattr(merged.token_info, name)[i].tolist() == expected, name
    assert merged.relation is None


def test_sequences_without_documents_are_real_in_a_mixed_batch() -> None:
    masks = np.array([True, False]), np.array([False, True])
    arrays = TokenInfoArrays(), TokenInfoArrays(document_ids=np.array([[0, 0, -1]], np.int32))
    batches = [
        (mask, SequenceBatch(np.ones((1, 3), np.int32), info, np.zeros((1, 3), np.bool_)))
        for mask, info in zip(masks, arrays, strict=True)
    ]
    merged = merge_batches(batches, 3)
    assert merged.is_real.tolist() == [[True] * 3, [True, True, False]]


def test_too_small_languages_are_left_out() -> None:
    text = [[[1] * 40], [[1] * 40], [[1] * 2]]
    config = {"kind": "mixture", "length": 16, "alpha": 0.5, "parts": {"text": {"kind": "packed"}}}
    source, _ = plan_text(InputFormat.parse(config), text)
    assert isinstance(source, MixedSequences)
    assert source.labels == ("de", "en")
    with pytest.raises(UserError, match="too few for one sequence"):
        plan_text(InputFormat.parse(config), [[[1] * 2]])


def test_only_listed_languages_are_read() -> None:
    unrestricted = plan_mixture(alpha=1.0)
    source = plan_mixture(alpha=1.0, languages=["de", "en"])
    assert source.labels == ("de", "en")
    selected = [
        sequence for sequence, label in enumerate(unrestricted.labels) if label in source.labels
    ]
    assert np.diff(source.bounds).tolist() == np.diff(unrestricted.bounds)[selected].tolist()
    with pytest.raises(UserError, match="the data set has no nl, but de, en, fr"):
        plan_mixture(alpha=1.0, languages=["nl"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"languages": ["en"]}, "needs alpha"),
        ({"parts": {"text": {"kind": "contiguous"}}}, "must stay in order"),
        ({"parts": {"text": {"kind": "mixture", "parts": {"a": "packed"}}}}, "must stay in order"),
        ({"parts": {}}, "at least 1"),
        ({"weights": {"test": 1.0}}, "a positive number for each of: text"),
        ({"weights": {"text": 0.0}}, "a positive number for each of: text"),
        ({"alpha": 1.5}, "less than or equal to 1"),
    ],
)
def test_invalid_mixtures_are_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ValidationError, ValueError), match=message):
        plan_mixture(**settings)


def test_parts_have_the_length_of_the_mixture() -> None:
    config = InputFormat.parse({"kind": "mixture", "length": 64, "parts": {"a": "packed"}})
    assert config.model_dump()["parts"]["a"]["length"] == 64
    source, _ = plan_text(config.model_copy(update={"length": 8}), TEXT)
    assert source.sequences(np.zeros(1, np.int64), 0).token_ids.shape == (1, 8)


@pytest.mark.parametrize("weights", [(3, 3, 3, 0.1, 0.1, 0.1), (1, 1), (5, 0.1, 0.1, 0.1), (2, 1)])
def test_every_source_has_a_quota_in_every_round(weights: tuple[float, ...]) -> None:
    for size in range(len(weights), 30):
        quotas = _integer_quotas(np.array(weights), size)
        assert quotas.min() >= 1
        assert quotas.sum() == size
