"""Malformed input: a bag of words ignores order, a reader of the first word does not."""

from collections import Counter
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest

from bertwright.analysis.behaviour import malformed_input as malformed
from bertwright.analysis.behaviour.classification import split_parts
from bertwright.analysis.behaviour.malformed_input import PERTURBATIONS, MalformedInput
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import encode_texts
from bertwright.data.tokenization.tokenizer import (
    ByteBpeConfig,
    TokenizerConfig,
    UnigramConfig,
    WordPieceConfig,
)
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import SENTENCES, small_model
from toy_recipes import toy

TEXTS = [Example(text) for text in SENTENCES for _ in range(4)]


@pytest.mark.parametrize("reads", ["bag", "first"])
def test_order_matters_to_a_reader_of_the_first_word(
    reads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def predict(_: AnalysedModel, texts: Sequence[Sequence[list[str]]]) -> list[dict[str, float]]:
        probabilities = [
            float("lamp" in words if reads == "bag" else words[0] == "the") for (words,) in texts
        ]
        return [{"yes": p, "no": 1 - p} for p in probabilities]

    monkeypatch.setattr(malformed, "class_probabilities", predict)
    monkeypatch.setattr(MalformedInput, "not_applicable", lambda *_: None)
    model = small_model()
    result = Analysis.parse("malformed-input").run(AnalysisInput(model, encode_texts(model, TEXTS)))
    values = {finding.metric: finding.value for finding in result.findings}
    assert {array.shape for array in result.arrays.values()} == {(len(TEXTS),)}
    # "lamp" is in two of six sentences, and four begin with "the".
    (chance,) = {f.baseline.value for f in result.findings if f.baseline is not None}
    assert chance == pytest.approx((1 / 3) ** 2 + (2 / 3) ** 2)
    shuffled = values["unchanged predictions, words shuffled"]
    if reads == "bag":
        assert all(values[f"unchanged predictions, {name}"] == 1 for name in PERTURBATIONS)
        assert all(values[f"confidence drop, {name}"] == 0 for name in PERTURBATIONS)
    else:
        assert shuffled < 0.8
        assert values["unchanged predictions, two neighbours swapped"] > shuffled
        assert values["confidence drop, words shuffled"] > 0


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_words_are_moved_or_removed_but_never_added(name: str) -> None:
    generator, words = np.random.default_rng(0), SENTENCES[2].split()
    for length in range(len(words)):
        perturbed = PERTURBATIONS[name](words[:length], generator)
        removed = Counter(words[:length]) - Counter(perturbed)
        assert not Counter(perturbed) - Counter(words[:length])
        assert not removed or name == "without function words"


@pytest.mark.parametrize(("name", "size"), [("words", 1), ("twos", 2), ("threes", 3)])
def test_groups_of_words_are_shuffled_whole(name: str, size: int) -> None:
    generator, words = np.random.default_rng(0), list("abcdefg")
    groups = ["".join(words[n : n + size]) for n in range(0, len(words), size)]
    orders = {
        "".join(PERTURBATIONS[f"{name} shuffled"](words, generator))
        for _ in range(40 if size < 3 else 100)
    }
    expected = {"".join(order) for order in permutations(groups)}
    assert orders <= expected
    assert len(orders) > 10 or orders == expected


def test_any_two_neighbours_are_swapped_and_function_words_are_removed() -> None:
    generator = np.random.default_rng(0)
    swap, remove = (
        PERTURBATIONS[name] for name in ("two neighbours swapped", "without function words")
    )
    assert {"".join(swap(list("abcd"), generator)) for _ in range(50)} == {"bacd", "acbd", "abdc"}
    assert "".join(swap(list("ab"), generator)) == "ba"
    assert PERTURBATIONS["reversed"](list("abc"), generator) == list("cba")
    assert remove(["The", "cat", "is", "on", "theirs", "."], generator) == ["cat", "theirs", "."]
    assert remove(["Is", "it"], generator) == ["Is", "it"]


@pytest.mark.parametrize(
    "config",
    [WordPieceConfig(vocab_size=200), ByteBpeConfig(vocab_size=400), UnigramConfig(vocab_size=120)],
)
def test_split_words_join_to_the_text(config: TokenizerConfig) -> None:
    texts = ["I don't like it, really: a well-made film! ", "the film \N{GRINNING FACE} is  good"]
    tokenizer = train_tokenizer(texts[:1] * 20, config)
    model = Model.build(toy("bert"), tokenizer.vocab_size, tokenizer)
    analysed = AnalysedModel("", TextModel(model, tokenizer, "float32"))
    for text in texts:
        for length in (128, 9):
            (encoded,) = encode_texts(analysed, [Example(text)], length)
            joined = " ".join(*split_parts(encoded))
            assert joined == text if length == 128 else text.startswith(joined)
            again = encode_texts(analysed, [Example(joined)])[0]
            assert again.token_ids == encoded.token_ids


def test_a_pair_has_two_parts() -> None:
    model = small_model()
    (text,) = encode_texts(model, [Example("the ship leaves .", "a lamp .")])
    assert split_parts(text) == [["the", "ship", "leaves", "."], ["a", "lamp", "."]]


def test_texts_of_one_word_have_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MalformedInput, "requires", ())
    model = small_model()
    for texts, is_missing in ((["ship", "lamp"], True), (["ship", "a lamp"], False)):
        inputs = AnalysisInput(model, encode_texts(model, [Example(text) for text in texts]))
        assert (MalformedInput().not_applicable(inputs) is not None) == is_missing


def test_a_language_model_has_no_classes() -> None:
    reason = Analysis.parse("malformed-input").not_applicable(AnalysisInput(small_model(), []))
    assert reason is not None
    assert "fine-tuned" in reason
