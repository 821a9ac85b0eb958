"""Rows that are read from their end: pieces keep their distances, and remember what follows."""

import pytest
import torch

from bertwright.encoder.memory import Memory
from bertwright.encoder.positions.distances import Distances
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import Causal, InOrder
from bertwright.model import Model
from recipes_at_toy_size import VOCABULARY, shaken, toy

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


def built(system: str, positions: str, *overrides: str) -> Model:
    choice = positions if positions.startswith("{") else f"{{kind: {positions}}}"
    recipe = toy(system, f"encoder.positions={choice}", *overrides)
    return shaken(Model.build(recipe, VOCABULARY).double(), 0.2).requires_grad_(False)


def pieces(length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, VOCABULARY, (2, length), generator=generator)


def reversed_rows(length: int, backward: tuple[bool, ...] = (True, True)) -> Coordinates:
    """Of rows of so many places, those that are ``backward`` from their end."""
    place = torch.arange(length)[None]
    marked = torch.tensor(backward)[:, None].expand(-1, length)
    return Coordinates(place, torch.where(marked, length - 1 - place, place), backward=marked)


def same(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("positions", [*BY_DISTANCE, "learned", "sinusoidal", "every-block"])
def test_who_sees_all_makes_of_a_reversed_row_what_it_makes_of_the_row(positions: str) -> None:
    model, text = built("bert", positions), pieces(LENGTH)
    expected = model.encoder(text)
    # Forward and backward side by side, as in the batch of a step.
    turned = torch.stack((text[0], text[1].flip(0)))
    found = model.encoder(turned, reversed_rows(LENGTH, (False, True)))
    same(found[0], expected[0])
    same(found[1].flip(0), expected[1])


@pytest.mark.parametrize("positions", BY_DISTANCE)
def test_parts_of_a_reversed_text_remember_what_stands_behind_them(positions: str) -> None:
    model, text = built("transformer-xl", positions), pieces(LENGTH * PARTS).flip(1)
    row, kept, found = reversed_rows(LENGTH), Memory.empty(64, text), list[torch.Tensor]()
    for part in text.split(LENGTH, dim=1):
        found.append(model.encoder(part, row, Causal(), memory=kept))
        kept = kept.following(row)
    whole = model.encoder(text, reversed_rows(LENGTH * PARTS), Causal())
    # Angles are rounded to float32, and are others in a part than in the whole.
    near = 1e-5 if positions == "rotary" else 1e-9
    torch.testing.assert_close(torch.cat(found, 1), whole, atol=near, rtol=near)


def test_distances_by_hand() -> None:
    row = reversed_rows(3, (False, True))
    keys = Memory({}, torch.zeros(2, 2, dtype=torch.int64)).before(row)
    distances = Distances.between(row, keys)
    assert distances.index is not None
    forward, backward = distances.values[distances.index].tolist()
    # The memory holds two places before the row; of the reversed row they stand behind it.
    assert forward == [[2, 1, 0, -1, -2], [3, 2, 1, 0, -1], [4, 3, 2, 1, 0]]
    assert backward == [[-x for x in row] for row in forward]


def test_who_asks_in_a_permuted_order_is_answered_alike() -> None:
    model = built("xlnet", "{kind: transformer-xl, untied: true, segments: true}")
    text, order = pieces(LENGTH), torch.stack([torch.randperm(LENGTH) for _ in range(2)])
    asked = torch.tensor([2, 5])

    def answers(backward: bool) -> torch.Tensor:
        row = reversed_rows(LENGTH, (backward, backward))
        turned = (lambda own: own.flip(1)) if backward else (lambda own: own)
        assert row.position is not None
        coordinates = Coordinates(
            torch.arange(LENGTH + 2)[None],
            torch.cat((row.position, asked.expand(2, -1)), 1),
            order=torch.cat((turned(order), order[:, asked]), 1),
            asking=(torch.arange(LENGTH + 2) >= LENGTH).expand(2, -1),
            backward=torch.full((2, LENGTH + 2), backward),
        )
        row_of_pieces = torch.cat((turned(text), torch.zeros(2, 2, dtype=torch.int64)), 1)
        return model.encoder(row_of_pieces, coordinates, InOrder())[:, LENGTH:]

    same(answers(backward=True), answers(backward=False))
