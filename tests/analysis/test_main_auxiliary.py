"""The main auxiliary: its sentences, and a report."""

import numpy as np

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.planted.models import small_subject
from bertwright.analysis.probing.main_auxiliary import (
    AUXILIARIES,
    NOUNS,
    Sentence,
    drawn,
)
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example


def sentences(behind_clause: bool, number: int = 200) -> list[Sentence]:
    generator = np.random.default_rng(int(behind_clause))
    return [drawn(generator, behind_clause) for _ in range(number)]


def test_places_tell_only_where_no_clause_comes_first() -> None:
    for behind_clause in (False, True):
        for sentence in sentences(behind_clause):
            first = next(n for n, word in enumerate(sentence.words) if word in AUXILIARIES)
            assert sentence.words[sentence.main] in AUXILIARIES
            assert first == (sentence.other if behind_clause else sentence.main)
    assert any(sentence.other > sentence.main for sentence in sentences(False))


def test_a_report_of_a_small_model() -> None:
    subject = small_subject(words=(*NOUNS, *AUXILIARIES))
    case = Case(subject, read_texts(subject, [Example("dog")]))
    choice = Analysis.choose({"kind": "main-auxiliary", "learned": 40, "judged": 20})
    found = choice.run(case)
    assert {array.shape for array in found.arrays.values()} == {(3,)}
    assert (found.arrays["learned rule, sentences as those learned"] > 0.1).all()
    (less,) = [f for f in found.findings if f.metric.endswith("less untrained")]
    assert less.value == 0, "it is as it was drawn"
