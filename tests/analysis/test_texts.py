"""Texts for analyses: every place is told what it is."""

import numpy as np
import pytest
import torch

from bertwright.analysis.planted.models import small_subject
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import MARKS, read_texts
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.tasks.answers import SpanAnswer
from bertwright.tasks.encoding import RowMaker
from bertwright.tasks.formats.examples import Example, TaggedWords
from bertwright.tasks.wide_questions import with_wide_questions
from recipes_at_toy_size import SYSTEMS, toy


def test_every_place_is_of_a_kind() -> None:
    subject = small_subject()
    plain, pair, tagged = read_texts(
        subject,
        [
            Example("the keeper , near a ship ."),
            Example("the keeper", "a ship ."),
            TaggedWords(("the", "keeper", ".")),
        ],
    )
    assert plain.words == ("the", "keeper", ",", "near", "a", "ship", ".")
    assert pair.words == ("the", "keeper", "a", "ship", ".")
    assert tagged.words == ("the", "keeper", ".")
    for text in (plain, pair, tagged):
        special = text.marks["opening"] | text.marks["separator"]
        np.testing.assert_array_equal(special, text.word < 0)
        assert text.marks["first"].sum() == len(text.words)
        spelled = [subject.tokenizer.decode([piece]) for piece in text.pieces]
        for place, word in enumerate(text.word):
            assert spelled[place] == ("" if word < 0 else text.words[word])
        assert set(text.marks) == set(MARKS)
    assert plain.marks["punctuation"].sum() == 2
    assert pair.marks["separator"].sum() == 2
    assert pair.parts == [0, 0, 0, 0, 1, 1, 1, 1]


def test_words_are_left_out_whole() -> None:
    subject = small_subject()
    (text,) = read_texts(subject, [Example("the keeper sees a ship")], length=5)
    assert text.words == ("the", "keeper", "sees")
    assert len(text) == 5


@pytest.mark.parametrize("length", [8, 11, 12, 13, 16])
@pytest.mark.parametrize("pair", [("a ship .", "the keeper sees a lamp , a ship"), ("a", "a ship")])
def test_a_pair_is_cut_where_fine_tuning_cuts_it(pair: tuple[str, str], length: int) -> None:
    subject = small_subject()
    for first, second in (pair, pair[::-1]):
        asked = Example(first, second)
        (text,) = read_texts(subject, [asked], length)
        maker = RowMaker.of(subject.text_model.model.recipe, subject.tokenizer, None, length)
        # Every word is one piece here, so that none is rounded away.
        assert text.pieces == maker.rows([asked])[0].pieces


@pytest.mark.parametrize("system", ["bert", "roberta", "longformer"])
def test_a_pair_is_read_as_it_was_learned(system: str) -> None:
    tokenizer, asked = small_subject().tokenizer, Example("the keeper", "a ship .")
    recipe = with_wide_questions(toy(system), [SpanAnswer()])
    model = Model.build(recipe, tokenizer.size, tokenizer)
    (text,) = read_texts(Subject(system, TextModel(model, tokenizer, "float32")), [asked])
    (row,) = RowMaker.of(recipe, tokenizer, model.encoder.longest).rows([asked])
    assert text.pieces == row.pieces
    assert (text.parts if text.segmented else None) == row.segments


@pytest.mark.parametrize("system", ["bert", "roberta", "gpt-2", "elmo"])
def test_models_say_what_they_lack(system: str) -> None:
    tokenizer = small_subject().tokenizer
    model = Model.build(toy(system), tokenizer.size, tokenizer)
    subject = Subject(system, TextModel(model, tokenizer, "float32"))
    assert (subject.lacks("blocks.*.attention.weights") is not None) == (system == "elmo")
    assert subject.lacks("blocks.*.residual") is None


@pytest.mark.parametrize("system", SYSTEMS)
def test_weights_that_are_not_lacked_are_those_that_heads_read_by(system: str) -> None:
    tokenizer, sites = small_subject().tokenizer, ("weights", "value", "context")
    model = Model.build(toy(system), tokenizer.size, tokenizer)
    subject = Subject(system, TextModel(model, tokenizer, "float32"))
    names = [f"blocks.*.attention.{site}" for site in sites]
    if subject.lacks(*names) is None:
        row = torch.randint(5, tokenizer.size, (1, 20), generator=torch.Generator().manual_seed(0))
        with torch.no_grad(), subject.encoder.record(*names) as values:
            subject.encoder(row)
        for layer in range(subject.num_layers):
            weights, value, context = (values[f"blocks.{layer}.attention.{site}"] for site in sites)
            torch.testing.assert_close(weights @ value, context)
