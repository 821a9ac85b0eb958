"""Tales of people: what is told in them, and how an earlier mention is guessed by what is said."""

import numpy as np

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.planted.models import small_subject
from bertwright.analysis.subject import Subject
from bertwright.analysis.syntax.coreference import GUESSES, guess
from bertwright.analysis.syntax.mentions import KINDS, Form, Mention, Tale, tales
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from recipes_at_toy_size import toy


def test_whoever_is_spoken_of_again_was_spoken_of() -> None:
    own = tales(100, np.random.default_rng(0))
    assert [tale.kind for tale in own] == [kind for kind in KINDS for _ in range(100)]
    for tale in own:
        assert tale.same.any()
        assert not tale.same.all()
        assert all(tale.words[mention.place] == mention.word for mention in tale.mentions)
        places = [mention.place for mention in tale.mentions]
        assert places == sorted(set(places))
        # A word is for one of them alone.
        assert len({(m.word, m.person) for m in tale.mentions}) == len(
            {m.word for m in tale.mentions}
        )


def test_who_is_asked_for_stands_anywhere() -> None:
    """The nearest mention is one of the same person no more often than any other is."""
    own = tales(1000, np.random.default_rng(0))
    nearest = np.mean([tale.same[-1] for tale in own])
    assert abs(nearest - np.mean([tale.same.mean() for tale in own])) < 0.05


def told(*mentions: tuple[str, Form, int]) -> Tale:
    own = tuple(Mention(place, *mention) for place, mention in enumerate(mentions))
    return Tale(tuple(mention.word for mention in own), own, "name")


def test_guesses_go_by_word_then_by_form_then_by_place() -> None:
    king, queen, judge = ("king", "man", 0), ("queen", "woman", 1), ("judge", "one", 2)
    crew = ("crew", "several", 3)
    asked = {
        told(king, queen, king): {"nearest mention": 1, "same word": 0, "rule": 0},
        told(king, queen, ("he", "man", 0)): {"nearest mention": 1, "same word": 1, "rule": 0},
        told(king, judge, queen, ("he", "man", 0)): {"rule": 1},
        told(judge, crew, ("she", "woman", 2)): {"rule": 0},
        told(king, queen, ("they", "several", 3)): {"rule": 1},
    }
    for tale, wanted in asked.items():
        assert {name: guess(tale, GUESSES[name]) for name in wanted} == wanted


def test_short_rows_and_models_without_attention_are_asked_nothing() -> None:
    choice = Analysis.choose({"kind": "coreference", "drawn": 20})
    short = ("encoder.positions.size=16", "phases=[{length: 16, share: 1}]")
    assert "too short" in str(choice.lacks(Case(small_subject("bert", *short), [])))
    subject = small_subject()
    assert choice.lacks(Case(subject, [])) is None
    model = Model.build(toy("elmo"), subject.tokenizer.size, subject.tokenizer)
    other = Subject("elmo", TextModel(model, subject.tokenizer, "float32"))
    assert "attention.weights" in str(choice.lacks(Case(other, [])))
