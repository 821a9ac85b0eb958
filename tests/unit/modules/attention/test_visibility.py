"""Visibility rules in exact small integers."""

import torch

from bertwright.modules.attention.mask import (
    BidirectionalVisibility,
    CausalVisibility,
    DilatedWindowVisibility,
    SameDocumentVisibility,
    Visibility,
    WindowVisibility,
    build_attention_mask,
    visibility_by_head,
)
from bertwright.modules.attention.mask.windows import visibility_at_block
from bertwright.modules.token_tensors import TokenInfo
from bertwright.recipes import Recipe


def _token_info(documents=None, length=4):
    document_ids = None if documents is None else torch.tensor([documents])
    return TokenInfo(torch.arange(length)[None], document_ids=document_ids)


def test_nothing_masked_means_no_dense_mask():
    assert build_attention_mask(BidirectionalVisibility(), _token_info()).layout == "all"
    assert build_attention_mask(SameDocumentVisibility(), _token_info()).layout == "all"
    assert (
        build_attention_mask(CausalVisibility() & SameDocumentVisibility(), _token_info()).layout
        == "causal"
    )


def test_documents_are_separate_and_padding_is_masked():
    mask = build_attention_mask(SameDocumentVisibility(), _token_info([0, 0, 1, -1]))
    assert mask.layout == "documents"
    assert mask.allowed.int().tolist()[0][0] == [
        [1, 1, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 0],
        [1, 1, 1, 1],
    ]
    assert mask.fully_masked[0, 0, :, 0].tolist() == [False, False, False, True]


def test_rules_compose():
    both = build_attention_mask(CausalVisibility() & WindowVisibility(size=1), _token_info())
    assert both.allowed.int().tolist()[0][0] == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 1, 1, 0],
        [0, 0, 1, 1],
    ]
    either = build_attention_mask(CausalVisibility() | WindowVisibility(size=1), _token_info())
    assert either.allowed.int().tolist()[0][0] == [
        [1, 1, 0, 0],
        [1, 1, 1, 0],
        [1, 1, 1, 1],
        [1, 1, 1, 1],
    ]


def test_redundant_rules_are_removed():
    assert BidirectionalVisibility() & CausalVisibility() == CausalVisibility()
    assert CausalVisibility() & CausalVisibility() == CausalVisibility()
    assert (BidirectionalVisibility() & BidirectionalVisibility()) == BidirectionalVisibility()


def test_dilated_windows_by_block_and_head():
    def head(rule: Visibility, number: int) -> list[list[int]]:
        mask = build_attention_mask(rule, _token_info(length=6), num_heads=2)
        return mask.allowed.expand(-1, 2, -1, -1).int().tolist()[0][number]

    rule = DilatedWindowVisibility(sizes=(1, 2), dilations=(1, 2), dilated_heads=1)
    lowest, causal = rule.at_block(0), CausalVisibility() & rule.at_block(1)
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


def test_equal_heads_share_a_mask():
    rule = DilatedWindowVisibility(sizes=(3,), dilations=(1, 2))
    assert rule.at_block(0) == WindowVisibility(size=3)
    assert build_attention_mask(rule.at_block(0), _token_info(), num_heads=2).allowed.shape[1] == 1
    assert build_attention_mask(rule.at_block(1), _token_info(), num_heads=2).allowed.shape[1] == 1


def test_windows_of_the_longformer_language_model():
    encoder = Recipe.load("longformer-char-base").encoder
    sizes: list[int] = []
    for block in range(12):
        (rule, heads), *others = visibility_by_head(
            visibility_at_block(block, encoder.visibility, None), 8
        )
        if block < 6:
            assert not others
            sizes.append(rule.rules[1].size)
            continue
        assert heads == (0, 1)
        assert rule.rules[1].dilations == (block // 2 - 1,)
        [(undilated, _)] = others
        sizes.append(undilated.rules[1].size)
    assert (sizes[0], sizes[-1]) == (32, 512)
    assert sizes == sorted(sizes)
    assert round(sum(sizes) / len(sizes), -1) == 230
