"""Suites: sentences say what they are meant to, and what is failed is told by capability."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.behaviour.sentiment_suites import PLANS, SLOTS, Poles, poles_of
from bertwright.analysis.behaviour.suite import Item, Suite, text_of, words_of
from bertwright.analysis.behaviour.unchanged_suites import full_stop, letters_swapped
from bertwright.analysis.planted.classifiers import bag_of_pieces
from bertwright.analysis.planted.models import SENTENCES, WORDS, small_subject
from bertwright.analysis.running import analyse
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example

LABELS = ("negative", "positive")
POLES = Poles("positive", "negative")


def case(subject: Subject) -> Case:
    return Case(subject, read_texts(subject, [Example(text) for text in SENTENCES]))


def test_one_class_may_fall_a_little_and_not_much() -> None:
    items = (Item(text="b", before="a", label="yes"),)
    suite = Suite(name="s", capability="c", form="direction", items=items)
    for fall, fails in ((-0.5, False), (0.09, False), (0.11, True)):
        chances = [[{"yes": p, "no": 1 - p}] for p in (0.9, 0.9 - fall)]
        assert suite.failed(*chances).tolist() == [fails]


def test_suites_of_ones_own_are_told_too() -> None:
    own = {
        "name": "mine",
        "capability": "weather",
        "form": "minimum functionality",
        "items": [{"text": "a wind", "label": label} for label in LABELS],
    }
    planted = case(bag_of_pieces({"wind": 1.0}, labels=LABELS))
    other = {**own, "name": "other", "items": [{"text": "a wind", "label": "positive"}]}
    found = Analysis.choose({"kind": "suites", "items": 4, "own": [own, other]}).run(planted)
    told = {each.metric: each for each in found.findings}
    assert (told["fails, mine"].value, told["fails, other"].value) == (0.5, 0)
    together = told["fails all of weather"]
    assert together.value == pytest.approx(1 / 3)
    assert together.num_units == 1
    for wrong in ({**own, "form": "invariance"}, {**own, "items": [{"text": "a wind"}]}):
        with pytest.raises(ValidationError, match="needs"):
            Suite.model_validate(wrong)


def test_sentences_say_what_they_are_meant_to() -> None:
    for plan in PLANS:
        suite = plan.suite(POLES, 60, 0)
        assert len(suite.items) > 30
        assert len({item.text for item in suite.items}) == len(suite.items)
        assert not any("{" in item.text for item in suite.items)
        share = np.mean([item.label == "positive" for item in suite.items])
        assert share == pytest.approx(0.5, abs=0.05)


def test_slips_change_two_letters_or_a_full_stop_and_nothing_else() -> None:
    generator = np.random.default_rng(0)
    for sentence in SENTENCES:
        parts = [sentence.split()]
        (slipped,) = letters_swapped(parts, generator)
        changed = [(a, b) for a, b in zip(*parts, slipped, strict=True) if a != b]
        ((old, new),) = changed
        assert sorted(old) == sorted(new)
        assert (old[0], old[-1]) == (new[0], new[-1])
        assert sum(a != b for a, b in zip(old, new, strict=True)) == 2
        assert full_stop(full_stop(parts, generator), generator) == parts
    assert letters_swapped([["a", "ship"]], generator) == [["a", "sihp"]]
    assert letters_swapped([["an", "eel"]], generator) == [["an", "eel"]]


def test_labels_say_themselves_what_is_praise() -> None:
    assert poles_of("reviews", ("Neg", "Pos")) == Poles("Pos", "Neg")
    assert poles_of("sst-2", ("0", "1")) == Poles("1", "0")
    assert poles_of("cola", ("0", "1")) is None
    assert words_of(text_of([["a", "b"], ["c"]])) == [["a", "b"], ["c"]]


def test_what_is_hard_is_held_against_plain_words(tmp_path: Path) -> None:
    words = (*WORDS, *" ".join(SLOTS.values()).split())
    tone = dict.fromkeys(f"{SLOTS['good']} {SLOTS['love']}".split(), 9.0)
    tone |= dict.fromkeys(f"{SLOTS['bad']} {SLOTS['hate']}".split(), -9.0)
    own = case(bag_of_pieces(tone, words, ("0", "1")))
    named = Analysis.choose({"kind": "suites", "good": "1", "bad": "0", "items": 30})
    (answered,) = analyse(own, [named], tmp_path, lambda line: None)
    verdicts = {each.claim: each.verdict for each in answered.conclusions}
    assert verdicts["plain words of praise and blame are told apart"] == "seen"
    assert verdicts["what is not good is harder than plain words"] == "seen"
    (answered,) = analyse(own, [Analysis.choose("suites")], tmp_path, lambda line: None)
    assert [each.claim for each in answered.conclusions] == [
        "two letters swapped change some answers"
    ]


def test_who_cannot_be_asked_says_so() -> None:
    assert "fine-tuned" in str(Analysis.choose("suites").lacks(case(small_subject())))
    planted = case(bag_of_pieces({}))
    assert Analysis.choose("suites").lacks(planted) is None
    wrong = Analysis.choose({"kind": "suites", "good": "yess"})
    assert wrong.lacks(planted) == "it names no class 'yess': did you mean 'yes'?"
