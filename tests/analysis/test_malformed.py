"""Malformed input: a bag of words minds no order, one who reads the first word alone does."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.behaviour import malformed
from bertwright.analysis.behaviour.classes import parts_of
from bertwright.analysis.behaviour.malformed import PERTURBATIONS, MalformedInput
from bertwright.analysis.planted.models import SENTENCES, small_subject
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.tasks.formats.examples import Example
from bertwright.text.tokenizers import (
    ByteBpeChoice,
    TokenizerChoice,
    UnigramChoice,
    WordPieceChoice,
)
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import toy

TEXTS = [Example(text) for text in SENTENCES for _ in range(4)]


@pytest.mark.parametrize("reads", ["bag", "first"])
def test_order_matters_to_who_reads_it(reads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(_: Subject, texts: Sequence[Sequence[list[str]]]) -> list[dict[str, float]]:
        chances = [
            float("lamp" in words if reads == "bag" else words[0] == "the") for (words,) in texts
        ]
        return [{"yes": chance, "no": 1 - chance} for chance in chances]

    monkeypatch.setattr(malformed, "classified", said)
    monkeypatch.setattr(MalformedInput, "lacks", lambda *_: None)
    subject = small_subject()
    found = Analysis.choose("malformed-input").run(Case(subject, read_texts(subject, TEXTS)))
    told = {finding.metric: finding.value for finding in found.findings}
    shuffled = told["class stays, words shuffled"]
    if reads == "bag":
        assert all(told[f"class stays, {name}"] == 1 for name in PERTURBATIONS)
        assert all(told[f"less sure, {name}"] == 0 for name in PERTURBATIONS)
    else:
        assert shuffled < 0.8
        assert told["class stays, two neighbours swapped"] > shuffled
        assert told["less sure, words shuffled"] > 0


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_words_are_moved_or_left_out_and_never_made(name: str) -> None:
    generator, words = np.random.default_rng(0), SENTENCES[2].split()
    for length in range(len(words)):
        found = PERTURBATIONS[name](words[:length], generator)
        left = Counter(words[:length]) - Counter(found)
        assert not Counter(found) - Counter(words[:length])
        assert not left or name == "without function words"


@pytest.mark.parametrize(
    "choice", [WordPieceChoice(size=200), ByteBpeChoice(size=400), UnigramChoice(size=120)]
)
def test_words_that_stay_where_they_are_are_the_text_that_was_given(
    choice: TokenizerChoice,
) -> None:
    told = ["I don't like it, really: a well-made film! ", "the film \N{GRINNING FACE} is  good"]
    tokenizer = train_tokenizer(told[:1] * 20, choice)
    model = Model.build(toy("bert"), tokenizer.size, tokenizer)
    subject = Subject("", TextModel(model, tokenizer, "float32"))
    for text in told:
        for length in (128, 9):
            (own,) = read_texts(subject, [Example(text)], length)
            joined = " ".join(*parts_of(own))
            assert joined == text if length == 128 else text.startswith(joined)
            assert read_texts(subject, [Example(joined)])[0].pieces == own.pieces


def test_a_pair_stays_two() -> None:
    subject = small_subject()
    (text,) = read_texts(subject, [Example("the ship leaves .", "a lamp .")])
    assert parts_of(text) == [["the", "ship", "leaves", "."], ["a", "lamp", "."]]


def test_a_model_that_names_no_classes_says_so() -> None:
    lacks = Analysis.choose("malformed-input").lacks(Case(small_subject(), []))
    assert lacks is not None
    assert "fine-tuned" in lacks
