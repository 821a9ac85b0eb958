"""Sequences read backward: tokens keep their distances, and memory holds what follows."""

import pytest
import torch

from bertwright.models import Model
from bertwright.modules.attention.cache import Memory
from bertwright.modules.attention.mask import CausalVisibility, PermutationVisibility
from bertwright.modules.attention.positions.distances import RelativeDistances
from bertwright.modules.token_tensors import TokenInfo
from toy_recipes import VOCABULARY, shaken, toy

LENGTH, PARTS = 8, 3
BY_DISTANCE = (
    "rotary",
    "alibi",
    "bucketed",
    "{kind: bucketed, gated: true}",
    "transformer-xl",
    "{kind: transformer-xl, untied: true, segments: true}",
    "log-buckets",
)


def build_model(system: str, positions: str, *overrides: str) -> Model:
    config = positions if positions.startswith("{") else f"{{kind: {positions}}}"
    recipe = toy(system, f"encoder.positions={config}", *overrides)
    return shaken(Model.build(recipe, VOCABULARY).double(), 0.2).requires_grad_(False)


def random_tokens(length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, VOCABULARY, (2, length), generator=generator)


def backward_info(length: int, backward: tuple[bool, ...] = (True, True)) -> TokenInfo:
    """Return the attributes of sequences of this length, some of them ``backward``."""
    index = torch.arange(length)[None]
    is_backward = torch.tensor(backward)[:, None].expand(-1, length)
    return TokenInfo(
        index, torch.where(is_backward, length - 1 - index, index), is_backward=is_backward
    )


def assert_equal(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("positions", [*BY_DISTANCE, "learned", "sinusoidal", "every-block"])
def test_a_reversed_sequence_has_the_same_states_if_bidirectional(positions: str) -> None:
    model, tokens = build_model("bert", positions), random_tokens(LENGTH)
    expected = model.encoder(tokens)
    # One forward and one backward sequence, as in a batch.
    mixed = torch.stack((tokens[0], tokens[1].flip(0)))
    states = model.encoder(mixed, backward_info(LENGTH, (False, True)))
    assert_equal(states[0], expected[0])
    assert_equal(states[1].flip(0), expected[1])


@pytest.mark.parametrize("positions", BY_DISTANCE)
def test_memory_of_a_reversed_text_holds_what_follows(positions: str) -> None:
    model, tokens = build_model("transformer-xl", positions), random_tokens(LENGTH * PARTS).flip(1)
    token_info, memory, states = (
        backward_info(LENGTH),
        Memory.empty(64, tokens),
        list[torch.Tensor](),
    )
    for part in tokens.split(LENGTH, dim=1):
        states.append(model.encoder(part, token_info, CausalVisibility(), memory=memory))
        memory = memory.next_memory(token_info)
    whole = model.encoder(tokens, backward_info(LENGTH * PARTS), CausalVisibility())
    # Rotary angles are rounded to float32, and differ between the parts and the whole.
    tolerance = 1e-5 if positions == "rotary" else 1e-9
    torch.testing.assert_close(torch.cat(states, 1), whole, atol=tolerance, rtol=tolerance)


def test_distances_by_hand() -> None:
    token_info = backward_info(3, (False, True))
    keys = Memory({}, torch.zeros(2, 2, dtype=torch.int64)).extend_token_info(token_info)
    distances = RelativeDistances.between(token_info, keys)
    assert distances.index is not None
    forward, backward = distances.values[distances.index].tolist()
    # The memory has two tokens before a sequence; for the backward one they come after it.
    assert forward == [[2, 1, 0, -1, -2], [3, 2, 1, 0, -1], [4, 3, 2, 1, 0]]
    assert backward == [[-x for x in row] for row in forward]


def test_query_tokens_of_a_reversed_sequence() -> None:
    model = build_model("xlnet", "{kind: transformer-xl, untied: true, segments: true}")
    tokens, order = random_tokens(LENGTH), torch.stack([torch.randperm(LENGTH) for _ in range(2)])
    query_positions = torch.tensor([2, 5])

    def query_states(backward: bool) -> torch.Tensor:
        backward_row = backward_info(LENGTH, (backward, backward))
        flip = (lambda t: t.flip(1)) if backward else (lambda t: t)
        assert backward_row.position_ids is not None
        token_info = TokenInfo(
            torch.arange(LENGTH + 2)[None],
            torch.cat((backward_row.position_ids, query_positions.expand(2, -1)), 1),
            factorisation_order=torch.cat((flip(order), order[:, query_positions]), 1),
            is_query_stream=(torch.arange(LENGTH + 2) >= LENGTH).expand(2, -1),
            is_backward=torch.full((2, LENGTH + 2), backward),
        )
        token_ids = torch.cat((flip(tokens), torch.zeros(2, 2, dtype=torch.int64)), 1)
        return model.encoder(token_ids, token_info, PermutationVisibility())[:, LENGTH:]

    assert_equal(query_states(backward=True), query_states(backward=False))
