"""The attention mask of a batch, in the cheapest form.

A kernel gets no mask if every token attends to every token, a flag for causal sequences, tiles if
most of a long sequence is masked, and a dense mask otherwise.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from bertwright.modules.attention.mask.tiles import Tiles, compute_tiles_by_head, visibility_by_head
from bertwright.modules.attention.mask.visibility import (
    AndVisibility,
    BidirectionalVisibility,
    CausalVisibility,
    ForwardBackwardVisibility,
    SameDocumentVisibility,
    Visibility,
    is_bidirectional,
    members,
)
from bertwright.modules.token_tensors import TokenInfo

Tiling = Literal["never", "auto", "always"]
"""Whether masks are computed in tiles; ``auto`` does so if it is faster."""


@dataclass(frozen=True, eq=False)
class AttentionMask:
    """A visibility rule evaluated for one batch.

    - ``layout``: ``all`` (nothing is masked), ``causal`` (causal sequences without padding),
      ``documents`` (contiguous documents, bidirectional), ``tiles``, or ``mask`` (dense)
    - ``allowed``: (B, 1, Lq, Lk) bool, or (B, H, Lq, Lk) if heads differ; True where a query may
      attend to a key. The row of a fully masked query is all True, to avoid an empty softmax
    - ``fully_masked``: (B, 1 or H, Lq, 1) bool, the fully masked queries; None if there are none
    - ``cu_seqlens``: int32, where each run of one document starts in the flattened batch, for
      variable-length kernels
    - ``pattern``: ``all`` or ``causal`` if the mask among real tokens is one of these
    - ``is_real``: (B, L) bool, False at padding; None without padding
    - ``tiles``: one element for all heads, or one for each group of heads with the same rule
    - ``global_tokens``: the global tokens; None if not requested or if there are none
    """

    layout: Literal["all", "causal", "documents", "tiles", "mask"]
    allowed: Tensor | None = None
    fully_masked: Tensor | None = None
    cu_seqlens: Tensor | None = None
    pattern: Literal["all", "causal"] | None = None
    is_real: Tensor | None = None
    tiles: tuple[Tiles, ...] = ()
    global_tokens: "GlobalTokens | None" = None


@dataclass(frozen=True, eq=False)
class GlobalTokens:
    """The tokens that attend to all tokens and that all tokens attend to, at most G in a sequence.

    ``positions`` (B or 1, G) are their indices in the sequence, padded with 0. ``is_global``
    (B or 1, L) bool marks them, and ``slots`` (B or 1, L) is their index in ``positions``. ``mask``
    is the mask with only the global tokens as queries.
    """

    positions: Tensor
    slots: Tensor
    is_global: Tensor
    mask: AttentionMask


def build_attention_mask(
    visibility: Visibility,
    token_info: TokenInfo,
    key_info: TokenInfo | None = None,
    tiling: Tiling = "never",
    with_global_tokens: bool = False,
    num_heads: int = 1,
) -> AttentionMask:
    """Evaluate a visibility rule for a batch, in the cheapest form.

    ``key_info`` describes the keys if they are other tokens than the queries. With
    ``with_global_tokens`` the mask also lists the global tokens. ``num_heads`` matters only if
    heads differ.
    """
    mask = _build_mask(visibility, token_info, key_info, tiling, num_heads)
    if not with_global_tokens or key_info is not None:
        return mask
    is_global = visibility.global_tokens(token_info.with_text_lengths())
    if is_global is None:
        return mask
    global_tokens = _global_tokens(visibility, token_info, is_global, num_heads)
    return replace(mask, global_tokens=global_tokens)


def allowed_pairs(visibility: Visibility, token_info: TokenInfo, num_heads: int = 1) -> Tensor:
    """Return the allowed pairs of real tokens, (B, 1, L, L), or (B, H, L, L) if heads differ."""
    return _allowed_pairs(visibility, token_info.as_queries(), token_info.as_keys(), num_heads)


def _build_mask(
    visibility: Visibility,
    token_info: TokenInfo,
    key_info: TokenInfo | None,
    tiling: Tiling,
    num_heads: int,
) -> AttentionMask:
    document_ids = token_info.document_ids if key_info is None else key_info.document_ids
    rules = members(visibility, AndVisibility)
    if document_ids is None:
        rules = tuple(r for r in rules if not isinstance(r, SameDocumentVisibility))
    pattern = _attention_pattern(rules)
    is_real = None if document_ids is None else document_ids >= 0
    if tiling == "always" and key_info is None:
        return AttentionMask(
            "tiles",
            pattern=pattern,
            is_real=is_real,
            tiles=compute_tiles_by_head(visibility, token_info, num_heads),
        )
    if document_ids is None and (pattern == "all" or (pattern == "causal" and key_info is None)):
        return AttentionMask(pattern, pattern=pattern)
    is_document_mask = is_bidirectional(visibility) and SameDocumentVisibility() in rules
    layout = "documents" if is_document_mask else "mask"
    if tiling == "auto" and key_info is None:
        tiles = compute_tiles_by_head(visibility, token_info, num_heads, only_if_faster=True)
        if tiles:
            return AttentionMask("tiles", pattern=pattern, is_real=is_real, tiles=tiles)
    allowed, fully_masked = _without_fully_masked(
        _allowed_pairs(
            visibility, token_info.as_queries(), (key_info or token_info).as_keys(), num_heads
        )
    )
    cu_seqlens = None
    if layout == "documents" and document_ids is not None and document_ids.is_cuda:
        cu_seqlens = cumulative_document_lengths(document_ids)
    return AttentionMask(layout, allowed, fully_masked, cu_seqlens, pattern, is_real)


def _allowed_pairs(
    visibility: Visibility, query: TokenInfo, key: TokenInfo, num_heads: int
) -> Tensor:
    """Return the allowed pairs (B, 1, Lq, Lk) bool, or (B, H, Lq, Lk) if heads differ."""
    groups = visibility_by_head(visibility, num_heads)
    by_group = torch.broadcast_tensors(*(rule.visible(query, key) for rule, _ in groups))
    allowed = torch.stack(by_group, dim=1)
    if len(groups) > 1:
        order = torch.tensor([head for _, heads in groups for head in heads]).argsort()
        group = torch.tensor([n for n, (_, heads) in enumerate(groups) for _ in heads])
        allowed = allowed.index_select(1, group[order].to(allowed.device))
    return allowed if key.document_ids is None else allowed & (key.document_ids >= 0)[:, None]


def _without_fully_masked(allowed: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the mask with fully masked queries set to True, and these queries.

    The queries are None if there are none.
    """
    fully_masked = ~allowed.any(-1, keepdim=True)
    # Training keeps the field, because a compiled step needs the same fields every time.
    if not torch.is_grad_enabled() and not fully_masked.is_cuda and not bool(fully_masked.any()):
        return allowed, None
    return allowed | fully_masked, fully_masked


def _attention_pattern(rules: "tuple[Visibility, ...]") -> Literal["all", "causal"] | None:
    """Return ``all`` or ``causal`` if a conjunction of rules is equivalent to it, else None."""
    if not all(
        isinstance(rule, BidirectionalVisibility | ForwardBackwardVisibility | CausalVisibility)
        for rule in rules
    ):
        return None
    return "causal" if any(isinstance(rule, CausalVisibility) for rule in rules) else "all"


def _global_tokens(
    visibility: Visibility, token_info: TokenInfo, is_global: Tensor, num_heads: int
) -> GlobalTokens | None:
    """Return the global tokens of a batch; None if no sequence has any."""
    if torch.compiler.is_exporting():
        # An exported graph cannot know their number, so it treats every token as global.
        positions = torch.arange(is_global.shape[-1], device=is_global.device)[None]
        slots = positions
    else:
        max_tokens = int(is_global.sum(-1).max())
        if not max_tokens:
            return None
        first = torch.argsort(is_global, dim=-1, descending=True, stable=True)[:, :max_tokens]
        positions = first.where(is_global.gather(-1, first), 0)
        slots = (is_global.cumsum(-1) - 1).clamp(min=0)
    info = token_info.with_text_lengths()
    indices = positions.expand(info.num_sequences, -1)
    queries = info.map(lambda t: t.expand(indices.shape[0], -1).gather(-1, indices)[..., None])
    allowed = _allowed_pairs(visibility, queries, info.as_keys(), num_heads)
    return GlobalTokens(
        positions, slots, is_global, AttentionMask("mask", *_without_fully_masked(allowed))
    )


def cumulative_document_lengths(document_ids: Tensor) -> Tensor:
    """Return where each run of one document starts in the flattened batch, then the end, int32.

    The end is repeated up to a power of two, so that a compiled step has few different sizes.
    """
    starts = torch.ones_like(document_ids, dtype=torch.bool)
    starts[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    offsets = starts.flatten().nonzero().flatten().to(torch.int32)
    size = 1 << len(offsets).bit_length()
    return torch.nn.functional.pad(
        offsets, (0, size + 1 - len(offsets)), value=document_ids.numel()
    )
