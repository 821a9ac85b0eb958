"""Minimal pairs: exact counts, and a tie is never correct."""

from types import SimpleNamespace

import pytest
import torch

from bertwright.tasks.zero_shot.minimal_pairs import MinimalPair, score_minimal_pairs


def scoring(scores: dict[str, float]) -> SimpleNamespace:
    scored_texts: list[str] = []

    def score(texts: list[str], language: str | None) -> list[float]:
        scored_texts.extend(texts)
        return [scores[text] for text in texts]

    return SimpleNamespace(
        score=score, scored_texts=scored_texts, require_text_tokenizer=lambda verb: None
    )


def test_counts_are_exact() -> None:
    model = scoring({"a": -1.0, "b": -2.0, "c": -2.00001, "d": -5.0})
    pairs = [
        MinimalPair("a", "b", "one"),
        MinimalPair("b", "c", "one"),
        MinimalPair("d", "a", "two"),
        MinimalPair("a", "a", "two"),
    ]
    assert score_minimal_pairs(model, pairs).as_dict() == {
        "accuracy": 0.25,
        "ties": 2,
        "pairs": 4,
        "interval": [0.0, 0.5],
        "paradigms": {
            "one": {"accuracy": 0.5, "ties": 1, "pairs": 2},
            "two": {"accuracy": 0.0, "ties": 1, "pairs": 2},
        },
    }
    assert sorted(model.scored_texts) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("system", ["bert", "modern"])
def test_constant_model_ties_on_every_pair(pretrained, system: str) -> None:
    model = pretrained(system)
    with torch.no_grad():
        model.model.embedding_table.zero_()
        model.model.output.bias.zero_()
    pair = MinimalPair("the red bird is old", "the old red bird is", "order")
    result = score_minimal_pairs(model, [pair] * 3)
    assert (result.total.num_ties, result.total.accuracy) == (3, 0.0)


def test_swapping_the_sentences_swaps_the_counts(pretrained) -> None:
    model = pretrained("bert")
    pairs = [MinimalPair("the red bird", "the bird red", "p"), MinimalPair("a tree", "tree a", "p")]
    swapped = [MinimalPair(pair.bad, pair.good, "p") for pair in pairs]
    there, back = score_minimal_pairs(model, pairs).total, score_minimal_pairs(model, swapped).total
    assert there.num_correct + back.num_correct + there.num_ties == 2
