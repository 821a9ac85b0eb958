"""Both sides embed the same sentences, and the vectors agree."""

import pytest

from bertwright.bench import embedding, one_text
from bertwright.errors import UserError

LINES = [f"Sentence number {number} speaks of nothing much." for number in range(12)]


def test_sentences_are_different_and_always_the_same() -> None:
    chosen = embedding.choose_sentences([*LINES, *LINES, "short"], 8)
    assert len(set(chosen)) == 8
    assert chosen == embedding.choose_sentences(LINES, 8)


def test_too_few_sentences_are_refused() -> None:
    with pytest.raises(UserError, match="12 different lines"):
        embedding.choose_sentences(LINES, 13)


def test_alone_is_compared_with_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "tune_process", lambda: None)
    found = embedding.compare(embedding.checkpoint_folder(), LINES, 1, True, lambda _: None)
    for line in found:
        assert line["sentences"] == 12
        assert line["against_default"] is None
        assert line["cosine_min"] > (0.99 if "int8" in line["contestant"] else 0.999)


def test_no_text_of_so_many_pieces_is_at_hand() -> None:
    with pytest.raises(UserError, match="no text of 99 pieces"):
        one_text.compare(embedding.checkpoint_folder(), 99, 1)
