"""No leaks through attention masks: every recipe, visibility and kernel, with and without memory.

The gradient of a final hidden state is exactly 0 at every masked position, through all blocks; if
a mixer sees all allowed positions, it is nonzero at all others.
"""

from collections.abc import Generator
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from bertwright.encoder.config import EncoderConfig
from bertwright.models import Model
from bertwright.modules.attention.attention import AttentionConfig
from bertwright.modules.attention.cache import Memory
from bertwright.modules.attention.fixed_patterns import FixedPatternsConfig
from bertwright.modules.attention.kernels.kernels import KERNELS
from bertwright.modules.attention.mask import (
    BidirectionalVisibility,
    CausalVisibility,
    DilatedWindowVisibility,
    GlobalVisibility,
    PermutationVisibility,
    RandomBlocksVisibility,
    ReverseCausalVisibility,
    SameDocumentVisibility,
    Visibility,
    WindowVisibility,
    supports_recurrence,
    tiles,
)
from bertwright.modules.attention.mask.windows import visibility_at_block
from bertwright.modules.recurrent.lstm import LSTMConfig
from bertwright.modules.token_tensors import TokenInfo
from toy_recipes import SYSTEMS, VOCABULARY, published, toy

LENGTH = 16

RULES: dict[str, Visibility | None] = {
    "own": None,
    "all": BidirectionalVisibility(),
    "causal": CausalVisibility(),
    "documents": SameDocumentVisibility(),
    "causal documents": CausalVisibility() & SameDocumentVisibility(),
    "reversed": ReverseCausalVisibility(),
    "order": PermutationVisibility(),
    "window": WindowVisibility(size=2),
    "windows": CausalVisibility()
    & DilatedWindowVisibility(sizes=(2, 1), dilations=(1, 3), dilated_heads=1),
    "sparse": WindowVisibility(size=1, block=2)
    | GlobalVisibility(last=1)
    | RandomBlocksVisibility(number=1, block=2),
}

PLAIN = TokenInfo(torch.arange(LENGTH)[None])


def _padded_info() -> TokenInfo:
    """Return sequences of two documents and padding, of left padding, and of padding only."""
    document_ids = torch.full((3, LENGTH), -1)
    document_ids[0, :6], document_ids[0, 6:13], document_ids[1, 5:] = 0, 1, 0
    position_ids = torch.zeros_like(document_ids)
    position_ids[0, :6], position_ids[0, 6:13] = torch.arange(6), torch.arange(7)
    position_ids[1, 5:] = torch.arange(LENGTH - 5)
    return TokenInfo(torch.arange(LENGTH)[None], position_ids, document_ids=document_ids)


def _query_stream_info() -> TokenInfo:
    """Return a sequence with query positions at the end; the first of them sees nothing."""
    generator = torch.Generator().manual_seed(4)
    order, positions = torch.randperm(LENGTH - 4, generator=generator), torch.arange(3, 7)
    positions[0] = order.argmin()
    is_query_stream = torch.arange(LENGTH) >= LENGTH - 4
    position_ids = torch.cat((torch.arange(LENGTH - 4), positions))
    return TokenInfo(
        torch.arange(LENGTH)[None],
        position_ids[None],
        factorisation_order=torch.cat((order, order[positions]))[None],
        is_query_stream=is_query_stream[None],
    )


LAYOUTS = {"plain": PLAIN, "padded": _padded_info(), "asking": _query_stream_info()}


def supported_kernels(system: str) -> list[str]:
    """Return the kernels that support a recipe."""
    encoder = published(system).encoder
    if isinstance(encoder.mixer, LSTMConfig):
        return ["explicit", "auto"]
    if not isinstance(encoder.mixer, AttentionConfig | FixedPatternsConfig):
        return [""]
    adds_bias = encoder.positions.is_relative or isinstance(encoder.mixer, FixedPatternsConfig)
    on_cpu = (k for k in KERNELS.values() if "cpu" in k.devices)
    return [k.name for k in on_cpu if k.supports_bias or not adds_bias]


def supports(system: str, rule: Visibility | None) -> bool:
    """Return True if a recipe supports this visibility and it is not its own."""
    encoder = published(system).encoder
    if rule is None or rule == encoder.visibility:
        return rule is None
    if encoder.mixer.is_recurrent:
        return supports_recurrence(rule)
    return encoder.mixer.supports_any_visibility or isinstance(
        rule, BidirectionalVisibility | CausalVisibility
    )


@cache
def build_model(system: str, kernel: str) -> Model:
    # Compiled kernels have no setting: kernel=auto selects them where possible.
    fuses = kernel in KERNELS and KERNELS[kernel].needs_compiler
    overrides = [f"encoder.mixer.kernel={kernel}"] if kernel and not fuses else []
    model = Model.build(toy(system, *overrides), VOCABULARY)
    if fuses:
        model.encoder.compile_softmax()
    return model.requires_grad_(False)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setattr(tiles, "TILE_SIZE", 4)
    tiles._tiles_by_rule.cache_clear()
    yield
    tiles._tiles_by_rule.cache_clear()


# Recipes with the same encoder are one case; word vectors have no attention mask.
DISTINCT = {
    published(system).encoder.model_dump_json(): system
    for system in SYSTEMS
    if published(system).encoder.is_contextual
}

CASES = [
    (system, kernel, name)
    for system in DISTINCT.values()
    for kernel in supported_kernels(system)
    for name, rule in RULES.items()
    if supports(system, rule)
]


@pytest.mark.parametrize(("system", "kernel", "name"), CASES)
def test_no_influence_from_masked_positions(system: str, kernel: str, name: str) -> None:
    model = build_model(system, kernel)
    rule = model.encoder.visibility if (visibility := RULES[name]) is None else visibility
    for layout, token_info in LAYOUTS.items():
        if (layout == "asking") == (name == "order"):
            for half, half_rule in state_halves(model, rule):
                influences = influence(model, rule, token_info, half)
                check(
                    model,
                    influences.of_sequence,
                    reachable(model, half_rule, token_info)[1],
                    token_info,
                )


@cache
def memory_document_ids(system: str) -> tuple[int, ...]:
    """Return the document ids of a memory: first empty, then text; () if unsupported."""
    encoder = published(system).encoder
    memory = (0,) if encoder.mixer.is_recurrent else (-1, -1, 0, 0)
    try:
        EncoderConfig.model_validate(
            {**encoder.model_dump(mode="json"), "memory_length": len(memory)}
        )
    except ValidationError:
        return ()
    return memory


MEMORY_CASES = [
    (system, kernel, name)
    for system, kernel, name in CASES
    if memory_document_ids(system) and kernel != "tiled" and name != "sparse"
]


@pytest.mark.parametrize(("system", "kernel", "name"), MEMORY_CASES)
def test_no_influence_from_masked_memory(system: str, kernel: str, name: str) -> None:
    model = build_model(system, kernel)
    rule = model.encoder.visibility if (visibility := RULES[name]) is None else visibility
    memory = torch.tensor(memory_document_ids(system))
    for layout, token_info in LAYOUTS.items():
        if (layout == "asking") == (name == "order"):
            ((full_state, full_rule),) = state_halves(model, rule)
            influences = influence(model, rule, token_info, full_state, memory)
            of_memory, of_sequence = reachable(model, full_rule, token_info, memory)
            check(model, influences.of_sequence, of_sequence, token_info)
            check(model, influences.of_memory, of_memory, token_info)


@dataclass
class Influence:
    """Nonzero gradients: (B, L, L) bool of the sequence, (blocks, B, L, M) of the memory."""

    of_sequence: Tensor
    of_memory: Tensor


def influence(
    model: Model,
    rule: Visibility,
    token_info: TokenInfo,
    half: slice,
    memory: Tensor | None = None,
) -> Influence:
    """Compute gradients with each sequence repeated ``LENGTH`` times, once per output position."""
    num_sequences = token_info.num_sequences
    repeated = token_info.map(
        lambda visibility: (
            visibility
            if visibility is token_info.index
            else visibility.repeat_interleave(LENGTH, 0)
        )
    )
    generator = torch.Generator().manual_seed(2)
    token_ids = torch.randint(5, VOCABULARY, (num_sequences, LENGTH), generator=generator)
    token_ids = token_ids.repeat_interleave(LENGTH, 0)
    filled_memory = (
        None if memory is None else memory_after_other_text(model, token_ids, rule, memory)
    )
    inputs: list[Tensor] = []

    def record_input(x: Tensor) -> Tensor:
        inputs.append(x.detach().requires_grad_())
        return inputs[-1]

    with model.encoder.replace("embeddings.output", record_input):
        states = model.encoder(token_ids, repeated, rule, memory=filled_memory)
    assert states.isfinite().all()
    index = torch.arange(LENGTH).repeat(num_sequences)
    weight = torch.randn(states.shape[-1], generator=generator)[half]
    output = (states[torch.arange(len(index)), index][:, half] @ weight).sum()
    leaves = [*inputs, *(filled_memory.hidden_states.values() if filled_memory is not None else [])]
    gradients = torch.autograd.grad(output, leaves, materialize_grads=True)
    nonzero = [(g.abs().sum(-1) != 0).unflatten(0, (num_sequences, LENGTH)) for g in gradients]
    return Influence(nonzero[0], torch.stack(nonzero[1:]) if nonzero[1:] else nonzero[0][:0])


def memory_after_other_text(
    model: Model, token_ids: Tensor, rule: Visibility, document_ids: Tensor
) -> Memory:
    """Return the memory after other text, as leaves of the graph."""
    follows_text = model.recipe.encoder.carries_backward
    filled_memory = Memory.empty(len(document_ids), token_ids, follows_text)
    with torch.no_grad():
        model.encoder((token_ids + 7) % VOCABULARY, visibility=rule, memory=filled_memory)
    states = filled_memory.next_memory(TokenInfo.from_token_ids(token_ids)).hidden_states
    return Memory(
        {block: state.clone().requires_grad_() for block, state in states.items()},
        document_ids.expand(len(token_ids), -1),
        follows_text,
    )


def reachable(
    model: Model, rule: Visibility, token_info: TokenInfo, memory: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the allowed influences: (blocks, B, L, M) of the memory, (B, L, L) of the sequence."""
    num_sequences, keys = token_info.num_sequences, token_info
    if memory is not None:
        follows_text = model.recipe.encoder.carries_backward
        empty = Memory({}, memory.expand(num_sequences, -1), follows_text)
        keys = empty.extend_token_info(token_info)
    reached = torch.eye(LENGTH, dtype=torch.bool).expand(num_sequences, -1, -1)
    itself, of_memory = reached, list[Tensor]()
    for block, order in reversed([*enumerate(model.recipe.encoder.depth.sublayer_orders())]):
        if "s" not in order:
            continue
        visibility = visibility_at_block(block, rule, model.encoder.sliding_window)
        visible = visibility.visible(token_info.as_queries(), keys.as_keys()).expand(
            num_sequences, -1, -1
        )
        if keys.document_ids is not None:
            visible = visible & (keys.document_ids >= 0)[:, None]
        num_remembered = visible.shape[-1] - LENGTH
        of_memory.append(_through(reached, visible[..., :num_remembered]))
        reached = _through(reached, visible[..., num_remembered:] | itself)
    return torch.stack(of_memory[::-1]), reached


def _through(later: Tensor, earlier: Tensor) -> Tensor:
    return later.float() @ earlier.float() > 0


def state_halves(model: Model, rule: Visibility) -> list[tuple[slice, Visibility]]:
    """Return the parts of a hidden state and their visibility.

    A recurrent mixer has two if its halves read in two directions.
    """
    num_directions = len(model.encoder.scan_directions)
    if not num_directions or num_directions > model.recipe.encoder.num_directions:
        return [(slice(None), rule)]
    width = model.recipe.encoder.direction_width
    rule_by_direction = {"forward": CausalVisibility(), "backward": ReverseCausalVisibility()}
    return [
        (slice(width * number, width * (number + 1)), rule & rule_by_direction[direction])
        for number, direction in enumerate(model.encoder.scan_directions)
    ]


def check(model: Model, influences: Tensor, allowed: Tensor, token_info: TokenInfo) -> None:
    """Require no influence that is not allowed, and all that are between text positions."""
    assert not (influences & ~allowed).any()
    mixer = model.recipe.encoder.mixer
    is_approximate = hasattr(mixer, "patterns") or hasattr(mixer, "buckets")
    padding = token_info.document_ids is not None and (token_info.document_ids < 0)[..., None]
    assert is_approximate or (influences | padding).equal(allowed | padding)
