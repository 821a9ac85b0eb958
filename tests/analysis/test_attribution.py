"""Attributions: exact where a model is linear, complete where it is not, whole shares."""

from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.attribution.answers import Answer
from bertwright.analysis.attribution.flow import attended, changes_without, greatest_flows
from bertwright.analysis.attribution.mixing import contributions
from bertwright.analysis.planted.models import SENTENCES, small_subject
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example


def case(subject: Subject) -> Case:
    return Case(subject, read_texts(subject, [Example(text) for text in SENTENCES]))


def identity() -> Subject:
    """An encoder whose blocks write nothing, and do not norm."""
    subject = small_subject("modern", "encoder.norm.kind=none")
    with torch.no_grad():
        for name, parameter in subject.encoder.blocks.named_parameters():
            if name.endswith(("output.weight", "down.weight")):
                parameter.zero_()
    return subject


@contextmanager
def reading_the_place_before() -> Generator[Answer]:
    """An answer of a model that attends to the place before the hidden one alone."""
    subject = small_subject("bert", "encoder.depth.layers=1")
    (text,) = read_texts(subject, [Example("the keeper sees a ship")])
    own = Answer.of(subject, text, 0, 0)

    def only_before(weights: torch.Tensor) -> torch.Tensor:
        told = torch.zeros_like(weights)
        told[..., own.place - 1] = 1
        return told

    with subject.encoder.replace("blocks.0.attention.weights", only_before):
        yield own


def test_an_identity_keeps_every_state_its_own() -> None:
    subject = identity()
    (text,) = read_texts(subject, [Example(SENTENCES[0])])
    for shares in contributions(subject, torch.tensor([text.pieces]), 2, 0):
        np.testing.assert_allclose(shares, np.eye(len(text)), atol=1e-9)


def test_random_directions_stand_for_the_whole_jacobian() -> None:
    subject = small_subject()
    (text,) = read_texts(subject, [Example(SENTENCES[1])])
    pieces = torch.tensor([text.pieces])
    *_, found = contributions(subject, pieces, 400, 0)
    from bertwright.analysis.attribution.entering import entered, entering

    def last(vectors: torch.Tensor) -> torch.Tensor:
        with (
            entering(subject, vectors),
            subject.encoder.record("blocks.1.residual", gradients=True) as values,
        ):
            subject.encoder(pieces)
        return values["blocks.1.residual"]

    whole = torch.autograd.functional.jacobian(last, entered(subject, pieces))
    lengths = whole[0, :, :, 0].square().sum((1, 3)).sqrt()
    expected = (lengths / lengths.sum(1, keepdim=True)).numpy()
    np.testing.assert_allclose(found, expected, rtol=0.15)
    assert found.sum(1) == pytest.approx(1)


def test_integrated_gradients_are_complete() -> None:
    subject = small_subject()
    for number, text in enumerate(case(subject).texts):
        own = Answer.of(subject, text, 0, number)
        assert own.attributed(128)[1] < 1e-3


def test_the_piece_that_decides_is_named() -> None:
    with reading_the_place_before() as own:
        found, _ = own.attributed(64)
    for values in found.values():
        others = np.delete(np.abs(values), [own.place - 1, own.place])
        assert abs(values[own.place - 1]) > 0
        assert others.max() < 1e-12


def test_reports_of_a_small_model() -> None:
    own = case(small_subject())
    found = Analysis.choose({"kind": "answer-attribution", "points": 64}).run(own)
    assert {f.metric for f in found.findings} >= {"fall, at random", "lead of gradient"}
    mixed = Analysis.choose({"kind": "token-mixing", "probes": 2}).run(own)
    assert [f.layer for f in mixed.findings] == [0, 1]
    assert all(0 < f.value < 1 for f in mixed.findings)
    flows = Analysis.choose("attention-flow").run(own)
    assert flows.arrays["correlations"].shape == (len(own.texts), 3)
    assert (np.abs(flows.arrays["correlations"]) <= 1).all()


def test_a_flow_is_bounded_by_what_stands_between() -> None:
    drawn = np.random.default_rng(0)
    first, second = (own / own.sum(1, keepdims=True) for own in drawn.random((2, 5, 5)))
    edges = [(own + np.eye(5)) / 2 for own in (first, second)]
    np.testing.assert_allclose(greatest_flows([first], 3), edges[0][3], atol=1e-6)
    # Through two layers each place in the middle is a way, as wide as its narrower half.
    ways = np.minimum(edges[1][3][:, None], edges[0]).sum(0)
    np.testing.assert_allclose(greatest_flows([first, second], 3), ways, atol=1e-5)


def test_what_attends_to_itself_alone_has_no_other_source() -> None:
    assert greatest_flows([np.eye(4)] * 3, 2).tolist() == [0, 0, 1, 0]


def test_a_place_without_which_nothing_changes_has_not_moved_the_score() -> None:
    own = Answer.of(identity(), case(identity()).texts[0], 0, 0)
    changes = changes_without(own)
    assert changes == pytest.approx(0, abs=1e-12)
    for weights in attended(own):
        assert weights.sum(1) == pytest.approx(1)


def test_attention_flow_finds_the_way_it_is_given() -> None:
    with reading_the_place_before() as own:
        changes, (weights,) = changes_without(own), attended(own)
    flows = greatest_flows([weights], own.place)
    flows[own.place], changes[own.place] = 0, 0
    assert flows.argmax() == changes.argmax() == own.place - 1
