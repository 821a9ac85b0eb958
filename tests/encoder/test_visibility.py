"""Rules over coordinates, in exact small integers."""

import torch

from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import Bidirectional, Causal, SameDocument, Window, view


def _coordinates(document=None, length=4):
    row = None if document is None else torch.tensor([document])
    return Coordinates(torch.arange(length)[None], document=row)


def test_nothing_to_hide_means_no_mask():
    assert view(Bidirectional(), _coordinates()).shape == "all"
    assert view(SameDocument(), _coordinates()).shape == "all"
    assert view(Causal() & SameDocument(), _coordinates()).shape == "causal"


def test_documents_are_apart_and_padding_is_never_seen():
    seen = view(SameDocument(), _coordinates([0, 0, 1, -1]))
    assert seen.shape == "documents"
    assert seen.mask.int().tolist()[0][0] == [
        [1, 1, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 0],
        [1, 1, 1, 1],
    ]
    assert seen.blind[0, 0, :, 0].tolist() == [False, False, False, True]


def test_rules_compose():
    both = view(Causal() & Window(size=1), _coordinates())
    assert both.mask.int().tolist()[0][0] == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 1, 1, 0],
        [0, 0, 1, 1],
    ]
    either = view(Causal() | Window(size=1), _coordinates())
    assert either.mask.int().tolist()[0][0] == [
        [1, 1, 0, 0],
        [1, 1, 1, 0],
        [1, 1, 1, 1],
        [1, 1, 1, 1],
    ]


def test_what_hides_nothing_vanishes_from_a_composition():
    assert Bidirectional() & Causal() == Causal()
    assert Causal() & Causal() == Causal()
    assert (Bidirectional() & Bidirectional()) == Bidirectional()
