"""The main auxiliary: states that know trees go on where those that know places go wrong."""

import numpy as np
import pytest
import torch

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.planted.models import small_subject
from bertwright.analysis.probing.main_auxiliary import (
    AUXILIARIES,
    NOUNS,
    Sentence,
    chosen,
    drawn,
    scorer,
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


@pytest.mark.parametrize("knows", ["tree", "place"])
def test_what_is_planted_decides_the_rule(knows: str) -> None:
    def states(own: list[Sentence]) -> tuple[torch.Tensor, torch.Tensor]:
        sizes = torch.tensor([len(sentence.words) for sentence in own])
        real = torch.arange(int(sizes.max())) < sizes[:, None]
        found = torch.randn(*real.shape, 6, generator=torch.Generator().manual_seed(0)) / 10
        for row, sentence in enumerate(own):
            first = next(n for n, word in enumerate(sentence.words) if word in AUXILIARIES)
            found[row, sentence.main if knows == "tree" else first, 0] += 3
        return found, real

    plain, behind = sentences(False), sentences(True)
    learned = scorer(*states(plain), np.array([sentence.main for sentence in plain]))
    said = chosen(*states(behind), learned)
    main, other = (np.array([getattr(s, name) for s in behind]) for name in ("main", "other"))
    assert (said == main).mean() == pytest.approx(1 if knows == "tree" else 0, abs=0.02)
    assert (said == other).mean() == pytest.approx(0 if knows == "tree" else 1, abs=0.02)


def test_a_report_of_a_small_model() -> None:
    subject = small_subject(words=(*NOUNS, *AUXILIARIES))
    case = Case(subject, read_texts(subject, [Example("dog")]))
    choice = Analysis.choose({"kind": "main-auxiliary", "learned": 40, "judged": 20})
    found = choice.run(case)
    assert {array.shape for array in found.arrays.values()} == {(3,)}
    assert (found.arrays["learned rule, sentences as those learned"] > 0.1).all()
