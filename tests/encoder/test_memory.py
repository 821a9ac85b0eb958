"""A text that is read in parts, each remembering those before, is read as in one piece."""

from typing import Literal

import pytest
import torch

from bertwright.encoder.memory import Memory
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import Causal, Global, Visibility
from bertwright.errors import UserError
from bertwright.model import Model
from recipes_at_toy_size import VOCABULARY, shaken, toy

LENGTH, PARTS = 8, 5
KINDS = (
    "transformer-xl",
    "{kind: transformer-xl, untied: true}",
    "rotary",
    "alibi",
    "bucketed",
    "{kind: bucketed, gated: true}",
    "log-buckets",
    "none",
)


class Banded(Visibility):
    """What a place sees that is read in parts of ``LENGTH`` with so much memory."""

    kind: Literal["banded"] = "banded"
    memory: int

    def visible(self, query, key):
        return (key.place <= query.place) & (
            key.place >= query.place // LENGTH * LENGTH - self.memory
        )


def built(positions: str, *overrides: str) -> Model:
    choice = positions if positions.startswith("{") else f"{{kind: {positions}}}"
    recipe = toy("transformer-xl", f"encoder.positions={choice}", *overrides)
    return shaken(Model.build(recipe, VOCABULARY), 0.1)


def pieces() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, VOCABULARY, (3, LENGTH * PARTS), generator=generator)


def read_in_parts(model: Model, memory: int, text: torch.Tensor) -> torch.Tensor:
    kept = Memory.empty(memory, text)
    found: list[torch.Tensor] = []
    for part in text.split(LENGTH, dim=1):
        found.append(model.encoder(part, rule=Causal(), memory=kept))
        kept = kept.following(Coordinates.plain(part))
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("kernel", ["explicit", "sdpa"])
@pytest.mark.parametrize("memory", [4, 8, 12, 64])
@pytest.mark.parametrize("positions", KINDS)
def test_parts_with_memory_are_one_banded_pass(positions: str, memory: int, kernel: str) -> None:
    model = built(positions, f"encoder.mixer.kernel={kernel}")
    found = read_in_parts(model, memory, pieces())
    expected = model.encoder(pieces(), rule=Banded(memory=memory))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_memory_is_normalised_as_the_row_is(placement: str) -> None:
    model = built("transformer-xl", f"encoder.norm.placement={placement}")
    found = read_in_parts(model, 64, pieces())
    torch.testing.assert_close(found, model.encoder(pieces()), atol=1e-5, rtol=1e-5)


def test_no_gradient_flows_into_what_is_remembered() -> None:
    model = built("transformer-xl")
    entered: list[torch.Tensor] = []

    def enter(x: torch.Tensor) -> torch.Tensor:
        entered.append(x.detach().requires_grad_())
        return entered[-1]

    with model.replace("embeddings.output", enter):
        states = read_in_parts(model, 8, pieces()[:, : 2 * LENGTH])
    states[:, LENGTH:].square().sum().backward()
    assert not entered[0].grad.any()
    assert entered[1].grad.abs().sum() > 0


def test_an_empty_memory_is_not_seen() -> None:
    model = built("transformer-xl")
    part = pieces()[:, :LENGTH]
    remembering = model.encoder(part, memory=Memory.empty(16, part))
    torch.testing.assert_close(remembering, model.encoder(part), atol=1e-6, rtol=1e-6)


def test_padding_is_not_remembered() -> None:
    model = built("transformer-xl")
    first, second = pieces()[:, :LENGTH], pieces()[:, LENGTH : 2 * LENGTH]
    document = torch.zeros(3, LENGTH, dtype=torch.int64)
    document[:, :3] = -1
    padded = Coordinates(torch.arange(LENGTH)[None], document=document)
    states = []
    for row in (first, torch.cat((second[:, :3], first[:, 3:]), dim=1)):
        kept = Memory.empty(LENGTH, row)
        model.encoder(row, padded, memory=kept)
        states.append(model.encoder(second, memory=kept.following(padded)))
    torch.testing.assert_close(states[0], states[1], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    "change",
    ["encoder.mixer.global_projections=true", "encoder.visibility={kind: short, length: 9}"],
)
def test_what_asks_where_a_text_begins_and_ends_remembers_nothing(change: str) -> None:
    with pytest.raises(UserError, match="memory holds the end of a text whose start is gone"):
        toy("transformer-xl", "encoder.positions=rotary", change)


def test_what_is_remembered_is_not_the_beginning_of_a_text() -> None:
    part = pieces()[:, :LENGTH]
    keys = Memory({}, torch.zeros(3, 4, dtype=torch.int64)).before(Coordinates.plain(part))
    seen = Global(first=1).visible(Coordinates.plain(part).queries(), keys.keys())
    assert seen[0, 1].tolist() == [False] * 4 + [True] + [False] * (LENGTH - 1)
