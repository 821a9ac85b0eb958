"""Attributions: random directions stand for all, and reports are whole."""

import numpy as np
import pytest
import torch

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.attribution.answers import Answer
from bertwright.analysis.attribution.entering import ENTRY, entered, entering
from bertwright.analysis.attribution.flow import attended, changes_without
from bertwright.analysis.attribution.mixing import contributions
from bertwright.analysis.findings import Found
from bertwright.analysis.listening import Heard, listen
from bertwright.analysis.planted.expectations.attribution import identity
from bertwright.analysis.planted.models import SENTENCES, small_subject
from bertwright.analysis.rows import row_of
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example


def case(subject: Subject) -> Case:
    return Case(subject, read_texts(subject, [Example(text) for text in SENTENCES]))


@pytest.mark.processor
def test_random_directions_stand_for_the_whole_jacobian() -> None:
    subject = small_subject()
    (text,) = read_texts(subject, [Example(SENTENCES[1])])
    pieces, coordinates = row_of(subject, text)
    *_, found = contributions(subject, text, 400, 0)

    def last(vectors: torch.Tensor) -> torch.Tensor:
        with (
            entering(subject, vectors),
            subject.encoder.record("blocks.1.residual", gradients=True) as values,
        ):
            subject.encoder(pieces, coordinates)
        return values["blocks.1.residual"]

    whole = torch.autograd.functional.jacobian(last, entered(subject, pieces, coordinates))
    lengths = whole[0, :, :, 0].square().sum((1, 3)).sqrt()
    expected = (lengths / lengths.sum(1, keepdim=True)).numpy()
    np.testing.assert_allclose(found, expected, rtol=0.15)
    assert found.sum(1) == pytest.approx(1)


@pytest.mark.parametrize("system", ["bert", "xlnet", "modern"])
def test_what_enters_of_a_pair_is_what_is_read_of_it(system: str) -> None:
    subject = small_subject(system)
    texts = read_texts(subject, [Example(SENTENCES[0], SENTENCES[1]), Example(SENTENCES[2])])
    for text in texts:
        listening = Entering()
        listen(subject, [text], [listening])
        own = entered(subject, *row_of(subject, text))
        torch.testing.assert_close(own, listening.heard, rtol=0, atol=1e-6)


class Entering:
    """Keeps what the blocks read of one text."""

    sites = (ENTRY,)

    def hear(self, heard: Heard) -> None:
        self.heard = heard.values[ENTRY]

    def found(self) -> Found:
        return Found([])


def test_who_names_pieces_elsewhere_is_not_asked_in_their_places() -> None:
    asked = ("answer-attribution", "attention-flow", "learned-masks", "attention-explains")
    for system in ("xlnet", "gpt-bert"):
        subject = small_subject(system)
        own = Case(subject, read_texts(subject, [Example(text) for text in 3 * SENTENCES]))
        for name in asked:
            assert "in their own places" in (Analysis.choose(name).lacks(own) or ""), name
    assert Analysis.choose("fixed-heads").lacks(case(small_subject("xlnet"))) is not None


def test_reports_of_a_small_model() -> None:
    own = case(small_subject())
    found = Analysis.choose({"kind": "answer-attribution", "points": 64}).run(own)
    assert {f.metric for f in found.findings} >= {"fall, at random", "lead of gradient"}
    mixed = Analysis.choose({"kind": "token-mixing", "probes": 2}).run(own)
    assert [f.layer for f in mixed.findings] == [0, 1, None]
    assert all(0 < f.value < 1 for f in mixed.findings[:2])
    flows = Analysis.choose("attention-flow").run(own)
    assert flows.arrays["correlations"].shape == (len(own.texts), 3)
    assert (np.abs(flows.arrays["correlations"]) <= 1).all()


def test_a_place_without_which_nothing_changes_has_not_moved_the_score() -> None:
    subject = identity()
    own = Answer.of(subject, case(subject).texts[0], 0, 0)
    changes = changes_without(own)
    assert changes == pytest.approx(0, abs=1e-12)
    for weights in attended(own):
        assert weights.sum(1) == pytest.approx(1)
