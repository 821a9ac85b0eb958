"""Behaviour: a model that is deaf to what is asked is told from one that hears it."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.behaviour.agreement import PARADIGMS, PLURAL, drawn
from bertwright.analysis.behaviour.cloze import Words, log_probabilities_in
from bertwright.analysis.behaviour.facts import RELATIONS
from bertwright.analysis.behaviour.negation import KINDS, items
from bertwright.analysis.findings import Found, Stored
from bertwright.analysis.planted.models import WORDS, small_subject
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example


def case(system: str = "bert") -> Case:
    return Case(small_subject(system), [])


def values(found: Found) -> dict[str, float]:
    return {finding.metric: finding.value for finding in found.findings}


@pytest.mark.parametrize("hears", [False, True])
def test_a_model_that_is_deaf_to_not_prefers_what_is_false(
    hears: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_kind = {thing.split()[-1]: kind for kind, things in KINDS.items() for thing in things}

    def said(_: Subject, sentences: Sequence[Words], asked: Sequence[int]) -> np.ndarray:
        found = []
        for words, place in zip(sentences, asked, strict=True):
            true = any(of_kind.get(word) == words[place] for word in words[:place])
            found.append(float(true != (hears and "not" in words)))
        return np.array(found)

    monkeypatch.setattr("bertwright.analysis.behaviour.negation.log_probabilities_in", said)
    told = values(Analysis.choose("negation").run(case()))
    assert told["true completions preferred, affirmed"] == 1
    assert told["true completions preferred, negated"] == hears


def test_kinds_are_right_as_often_as_wrong_and_never_both() -> None:
    own = items()
    assert Counter(item.kind for item in own) == Counter(item.other for item in own)
    for item in own:
        assert item.kind != item.other
        for negated in (False, True):
            sentence = item.sentence(negated, "kind")
            assert sentence[item.asked(negated)] == item.kind
            assert ("not" in sentence) == negated


@pytest.mark.parametrize("follows", ["subject", "nearest"])
def test_agreement_with_the_subject_is_told_from_that_with_the_nearest_noun(
    follows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = {"are", "were", "have", "like", "know", "see", "help"}

    def said(_: Subject, sentences: Sequence[Words], asked: Sequence[int]) -> np.ndarray:
        found = []
        for words, place in zip(sentences, asked, strict=True):
            nouns = [n for n in range(place) if words[n - 1] == "the"]
            noun = nouns[-1 if follows == "nearest" or "whom" in words else 0]
            found.append(float((words[noun] in PLURAL) == (words[place] in several)))
        return np.array(found)

    monkeypatch.setattr("bertwright.analysis.behaviour.agreement.log_probabilities_in", said)
    told = values(Analysis.choose({"kind": "agreement", "pairs": 40}).run(case()))
    assert told["simple"] == told["inside a clause"] == 1
    assert told["attractor"] == told["behind a clause"] == (follows == "subject")


def test_pairs_differ_in_the_verb_alone() -> None:
    generator = np.random.default_rng(0)
    for paradigm in PARADIGMS.values():
        for _ in range(20):
            pair = drawn(paradigm, generator)
            good, bad = pair.sentence(True), pair.sentence(False)
            assert [n for n, (a, b) in enumerate(zip(good, bad, strict=True)) if a != b] == [
                pair.verb
            ]


@pytest.mark.parametrize("hears", [False, True])
def test_facts_that_a_model_knows_are_told_from_those_that_it_hears_denied(
    hears: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {fact for relation in RELATIONS for fact in relation.facts}

    def said(_: Subject, sentences: Sequence[Words], asked: Sequence[int]) -> np.ndarray:
        found = []
        for words, place in zip(sentences, asked, strict=True):
            true = any((word, words[place]) in known for word in words)
            found.append(float(true != (hears and "not" in words)))
        return np.array(found)

    monkeypatch.setattr("bertwright.analysis.behaviour.facts.log_probabilities_in", said)
    told = values(Analysis.choose("facts").run(case()))
    assert told["right first"] == 1
    assert (told["same answer where it is denied"] == 1) != hears


def test_a_model_that_finds_all_answers_alike_knows_no_fact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def said(_: Subject, sentences: Sequence[Words], asked: Sequence[int]) -> np.ndarray:
        return np.zeros(len(sentences))

    monkeypatch.setattr("bertwright.analysis.behaviour.facts.log_probabilities_in", said)
    assert values(Analysis.choose("facts").run(case()))["right first"] == 0


def test_facts_are_asked_where_their_answers_stand() -> None:
    for relation in RELATIONS:
        assert len(relation.answers) > 5
        for given, right in relation.facts:
            for denied in (False, True):
                sentence = relation.sentence(given, right, denied)
                assert sentence[relation.asked(denied)] == right
                assert ("not" in sentence) == denied


@pytest.mark.parametrize("system", ["bert", "gpt-2", "xlnet"])
def test_words_are_asked_for_in_their_places(system: str) -> None:
    subject = small_subject(system)
    sentence = WORDS[:6]
    others = [(*sentence[:3], word, *sentence[4:]) for word in WORDS]
    found = log_probabilities_in(subject, others, [3] * len(others))
    # What stands in a place has no say in it: the words of a vocabulary are all that can be.
    assert 0.5 < np.exp(found).sum() <= 1 + 1e-9
    again = log_probabilities_in(subject, others[:1], [3])
    assert again[0] == pytest.approx(found[0], rel=1e-9)


def test_a_model_without_words_says_so() -> None:
    subject = small_subject()
    subject.text_model.model.output = None
    for kind in ("negation", "agreement", "facts"):
        assert Analysis.choose(kind).lacks(Case(subject, [])) == "its encoder names no pieces"


def test_reports_of_a_small_model() -> None:
    torch.manual_seed(0)
    words = [word for item in items() for word in (*item.sentence(True, "kind"), item.other)]
    own = Case(small_subject(words=tuple(dict.fromkeys(words))), [])
    assert Analysis.choose("negation").run(own).arrays["leads"].shape == (2, 24)
    found = Analysis.choose({"kind": "agreement", "pairs": 5}).run(own)
    assert len(found.findings) == len(PARADIGMS) + 1


@pytest.mark.parametrize("end", ["", " .", " , ."])
def test_nothing_is_told_of_pairs_by_marks_or_by_weights_as_they_are_drawn(end: str) -> None:
    generator, subject = np.random.default_rng(0), small_subject()
    texts = [" ".join(generator.choice(WORDS[:-2], 10)) for _ in range(24)]
    analysis = Analysis.choose("pair-questions")

    def found(end: str) -> Stored:
        case = Case(subject, read_texts(subject, [Example(text + end) for text in texts]))
        own = analysis.run(case)
        return Stored({}, [each.as_dict() for each in own.findings], own.arrays)

    np.testing.assert_equal(found(end).arrays, found("").arrays)
    assert {own.verdict for own in analysis.conclusions(found(end))[:2]} == {"not seen"}
