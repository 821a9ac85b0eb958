"""The two halves of the held-out documents."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bertwright.core.errors import UserError
from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset, Split
from bertwright.data.shards.halves import with_heldout_half
from bertwright.data.tokenization.tokenizer import Tokenizer
from small_text import stories


def prepared(folder: Path, tokenizer: Tokenizer, **settings: float) -> Dataset:
    text = folder / "text.txt"
    text.write_text(
        "\n\n".join(f"{story} {'So. ' * (n % 29)}" for n, story in enumerate(stories(120)))
    )
    return prepare(text, folder / tokenizer.kind, tokenizer, num_workers=1, **settings)


def documents_of(split: Split) -> list[tuple[int, ...]]:
    """Return the token ids of every document."""
    bounds = pairwise(split.document_starts.tolist())
    return [tuple(split.token_ids(*bound).tolist()) for bound in bounds]


def numbers_of(half: str, data: Dataset) -> list[int]:
    """Return the number of each document of a half among all held-out documents."""
    documents = documents_of(data.split("heldout"))
    return [
        documents.index(d) for d in documents_of(with_heldout_half(data, half).split("heldout"))
    ]


def test_every_document_is_in_the_same_half_for_every_tokenizer(
    trained: dict[str, Tokenizer], tmp_path: Path
) -> None:
    halves = set[tuple[tuple[int, ...], ...]]()
    for tokenizer in trained.values():
        data = prepared(tmp_path, tokenizer, heldout=0.5)
        first, second = (numbers_of(half, data) for half in ("first", "second"))
        num_documents = data.split("heldout").num_documents
        assert sorted(first + second) == list(range(num_documents))
        assert min(len(first), len(second)) > num_documents / 4
        assert data.split("train") is with_heldout_half(data, "first").split("train")
        halves.add((tuple(first), tuple(second)))
    assert len(halves) == 1


def test_translations_are_in_the_half_of_their_original(
    wordpiece: Tokenizer, tmp_path: Path
) -> None:
    sides = [tmp_path / "en.txt", tmp_path / "de.txt"]
    for number, side in enumerate(sides):
        side.write_text(
            "\n".join(f"A {'long ' * (n * (1 + number) % 23)}text {n}." for n in range(80))
        )
    spec = f"en,de={sides[0]},{sides[1]}"
    data = prepare(spec, tmp_path / "data", wordpiece, num_workers=1, heldout=0.5)
    halves = [with_heldout_half(data, half).split("heldout") for half in ("first", "second")]
    whole = data.split("heldout")
    assert len(whole.translations) > 20
    assert sum(len(half.translations) for half in halves) == len(whole.translations)
    for half in halves:
        assert half.num_documents == 2 * len(half.translations) > 0


def test_a_half_without_documents_is_an_error(wordpiece: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One text.\n\nAnother text.")
    data = prepare(tmp_path / "a.txt", tmp_path / "data", wordpiece, num_workers=1)
    with pytest.raises(UserError, match=r"too few held-out documents for two halves \(1\)"):
        for half in ("first", "second"):
            with_heldout_half(data, half)


def test_words_of_a_half_have_their_bytes(wordpiece: Tokenizer, tmp_path: Path) -> None:
    data = prepared(tmp_path, wordpiece, heldout=0.5)
    splits = [data.split("heldout")]
    splits += [with_heldout_half(data, half).split("heldout") for half in ("first", "second")]
    whole, *halves = (np.sort(s.word_bytes(0, s.num_tokens)) for s in splits)
    assert np.array_equal(np.sort(np.concatenate(halves)), whole)
