"""Rules over coordinates, in exact small integers."""

import torch

from bertwright.encoder.locality import rule_at
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import (
    Bidirectional,
    Causal,
    SameDocument,
    Visibility,
    Window,
    Windows,
    by_head,
    view,
)
from bertwright.recipes import Recipe


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


def test_windows_grow_over_blocks_and_leave_places_out_in_some_heads():
    def head(rule: Visibility, number: int) -> list[list[int]]:
        found = view(rule, _coordinates(length=6), heads=2).mask.expand(-1, 2, -1, -1)
        return found.int().tolist()[0][number]

    rule = Windows(sizes=(1, 2), dilations=(1, 2), dilated_heads=1)
    lowest, causal = rule.at_block(0), Causal() & rule.at_block(1)
    assert (
        head(lowest, 0)
        == head(lowest, 1)
        == [
            [1, 1, 0, 0, 0, 0],
            [1, 1, 1, 0, 0, 0],
            [0, 1, 1, 1, 0, 0],
            [0, 0, 1, 1, 1, 0],
            [0, 0, 0, 1, 1, 1],
            [0, 0, 0, 0, 1, 1],
        ]
    )
    assert head(causal, 0) == [
        [1, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
        [1, 0, 1, 0, 0, 0],
        [0, 1, 0, 1, 0, 0],
        [1, 0, 1, 0, 1, 0],
        [0, 1, 0, 1, 0, 1],
    ]
    assert head(causal, 1) == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 1, 0],
        [0, 0, 0, 1, 1, 1],
    ]
    assert rule.at_block(7) == rule.at_block(1)


def test_no_more_is_told_apart_than_differs():
    rule = Windows(sizes=(3,), dilations=(1, 2))
    assert rule.at_block(0) == Window(size=3)
    assert view(rule.at_block(0), _coordinates(), heads=2).mask.shape[1] == 1
    assert view(rule.at_block(1), _coordinates(), heads=2).mask.shape[1] == 1


def test_the_language_model_of_letters_sees_further_block_by_block():
    encoder = Recipe.load("longformer-char-base").encoder
    sizes: list[int] = []
    for block in range(12):
        (rule, heads), *others = by_head(rule_at(block, encoder.visibility, None), 8)
        if block < 6:
            assert not others
            sizes.append(rule.rules[1].size)
            continue
        assert heads == (0, 1)
        assert rule.rules[1].dilations == (block // 2 - 1,)
        [(near, _)] = others
        sizes.append(near.rules[1].size)
    assert (sizes[0], sizes[-1]) == (32, 512)
    assert sizes == sorted(sizes)
    assert round(sum(sizes) / len(sizes), -1) == 230
