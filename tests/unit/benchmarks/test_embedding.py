"""Sampled sentences, and vectors close to those in float32."""

import pytest

from benchmarks.embedding import compare as embedding
from benchmarks.embedding import single_text
from bertwright.core.errors import UserError

LINES = [f"Sentence number {number} speaks of nothing much." for number in range(12)]


def test_sampled_sentences_are_distinct_and_reproducible() -> None:
    sentences = embedding.sample_sentences([*LINES, *LINES, "short"], 8)
    assert len(set(sentences)) == 8
    assert sentences == embedding.sample_sentences(LINES, 8)


def test_too_few_sentences_are_refused() -> None:
    with pytest.raises(UserError, match="12 distinct lines"):
        embedding.sample_sentences(LINES, 13)


def test_vectors_are_close_to_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "configure_process", lambda: None)
    rows = embedding.compare(embedding.checkpoint_folder(), LINES, 1, True, lambda _: None)
    for row in rows:
        assert row["sentences"] == 12
        assert row["against_default"] is None
        assert row["cosine_min"] > (0.99 if "int8" in row["library"] else 0.999)


def test_a_text_length_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UserError, match="there is no text of 99 tokens"):
        single_text.compare(embedding.checkpoint_folder(), 99, 1)
