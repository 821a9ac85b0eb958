"""A text that is read in parts, with keys and values kept, is read as in one pass."""

import pytest
import torch

from bertwright.encoder.cache import Cache
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import Causal, InOrder, Visibility, Window, Windows
from bertwright.model import Model
from recipes_at_toy_size import VOCABULARY, shaken, toy

LENGTH = 14
KINDS = (
    "learned",
    "sinusoidal",
    "rotary",
    "alibi",
    "bucketed",
    "{kind: bucketed, gated: true}",
    "transformer-xl",
    "{kind: transformer-xl, untied: true, segments: true}",
    "log-buckets",
    "none",
)


def built(positions: str, *overrides: str, system: str = "gpt") -> Model:
    choice = positions if positions.startswith("{") else f"{{kind: {positions}}}"
    return shaken(
        Model.build(toy(system, f"encoder.positions={choice}", *overrides), VOCABULARY), 0.1
    )


def text(num_rows: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, VOCABULARY, (num_rows, LENGTH), generator=generator)


def coordinates(start: int, stop: int, front: torch.Tensor) -> Coordinates:
    """Of the places from ``start`` to ``stop`` of rows with so much padding in front (B, 1)."""
    place = torch.arange(start, stop)[None]
    position = (place - front).clamp(min=0)
    return Coordinates(place, position, document=torch.where(place < front, -1, 0))


@pytest.mark.parametrize("kernel", ["explicit", "sdpa"])
@pytest.mark.parametrize("positions", KINDS)
@torch.no_grad()
def test_parts_are_one_pass_whatever_the_positions_and_the_padding(positions, kernel) -> None:
    model = built(positions, f"encoder.mixer.kernel={kernel}")
    front = torch.tensor([[0], [3], [5]])
    whole = model.encoder(text(), coordinates(0, LENGTH, front), Causal())
    cache, found = Cache(), []
    for start, stop in [(0, 6), (6, 7), (7, 8), (8, 11), (11, LENGTH)]:
        part = coordinates(start, stop, front)
        found.append(model.encoder(text()[:, start:stop], part, Causal(), memory=cache))
    torch.testing.assert_close(torch.cat(found, 1), whole, atol=1e-5, rtol=1e-5)
    for row, padding in enumerate(front.flatten().tolist()):
        alone = model.encoder(text()[row : row + 1, padding:], rule=Causal())[0]
        torch.testing.assert_close(whole[row, padding:], alone, atol=1e-5, rtol=1e-5)


REACHING_4 = (Window(size=4), Windows(sizes=(2,), dilations=(2,), dilated_heads=1))


@pytest.mark.parametrize("window", REACHING_4, ids=lambda rule: rule.kind)
@pytest.mark.parametrize("placement", ["pre", "post"])
@torch.no_grad()
def test_what_is_out_of_reach_can_be_dropped(placement: str, window: Visibility) -> None:
    model = built("transformer-xl", f"encoder.norm.placement={placement}")
    rule, none = Causal() & window, torch.zeros(3, 1, dtype=torch.int64)
    whole = model.encoder(text(), coordinates(0, LENGTH, none), rule)
    cache = Cache(4)
    for start, stop in [(0, 6), *((place, place + 1) for place in range(6, LENGTH))]:
        part = coordinates(start, stop, none)
        states = model.encoder(text()[:, start:stop], part, rule, memory=cache)
        torch.testing.assert_close(states, whole[:, start:stop], atol=1e-5, rtol=1e-5)
    assert cache.before(coordinates(LENGTH, LENGTH + 1, none)).place.shape == (1, 5)


@torch.no_grad()
def test_rows_that_are_selected_go_on_as_if_they_were_alone() -> None:
    model = built("learned")
    front = torch.tensor([[0], [3], [5]])
    whole = model.encoder(text(), coordinates(0, LENGTH, front), Causal())
    cache, chosen = Cache(), torch.tensor([2, 0])
    model.encoder(text()[:, :8], coordinates(0, 8, front), Causal(), memory=cache)
    cache.select(chosen)
    rest = coordinates(8, LENGTH, front[chosen])
    states = model.encoder(text()[chosen, 8:], rest, Causal(), memory=cache)
    torch.testing.assert_close(states, whole[chosen, 8:], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_places_that_ask_are_not_kept() -> None:
    model = built("{kind: transformer-xl, untied: true, segments: true}", system="xlnet")
    rows = text(2)
    asks = torch.zeros(2, 1, dtype=torch.int64)

    def asked(start: int, stop: int) -> Coordinates:
        position = torch.tensor([[*range(start, stop), stop]]).expand(2, -1)
        asking = torch.arange(stop - start + 1)[None].expand(2, -1) == stop - start
        return Coordinates(position[:1], position, order=position, asking=asking)

    cache = Cache()
    for start, stop in [(0, 5), *((place, place + 1) for place in range(5, LENGTH))]:
        part = torch.cat((rows[:, start:stop], asks), 1)
        answer = model.encoder(part, asked(start, stop), InOrder(), memory=cache)[:, -1]
        whole = torch.cat((rows[:, :stop], asks), 1)
        expected = model.encoder(whole, asked(0, stop), InOrder())[:, -1]
        torch.testing.assert_close(answer, expected, atol=1e-5, rtol=1e-5)
