"""Places that ask see what comes before them, are seen by nobody, and know where they stand."""

import numpy as np
import pytest
import torch

from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import Causal, InOrder
from bertwright.model import Model
from bertwright.objectives.objective import visibility_of
from recipes_at_toy_size import VOCABULARY, shaken, toy, toy_batch

LENGTH = 10


def built(*overrides: str) -> Model:
    return shaken(Model.build(toy("xlnet", *overrides), VOCABULARY), 0.1)


def pieces(num_rows: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, VOCABULARY, (num_rows, LENGTH), generator=generator)


def asked(order: torch.Tensor, where: list[int]) -> Coordinates:
    """Coordinates of one row and of the places that ask about ``where``."""
    places = torch.tensor(where)
    position = torch.cat((torch.arange(LENGTH), places))[None]
    turns = torch.cat((order, order[places]))[None]
    asking = torch.arange(LENGTH + len(where))[None] >= LENGTH
    return Coordinates(
        torch.arange(LENGTH + len(where))[None], position, order=turns, asking=asking
    )


def test_content_in_the_order_of_the_text_is_a_causal_pass() -> None:
    model = built()
    order = torch.arange(LENGTH)
    rows = torch.cat((pieces(1), torch.zeros(1, 3, dtype=torch.int64)), dim=1)
    both = model.encoder(rows, asked(order, [2, 5, 9]), InOrder())
    causal = model.encoder(pieces(1), rule=Causal())
    torch.testing.assert_close(both[:, :LENGTH], causal, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kernel", ["explicit", "sdpa"])
def test_an_answer_knows_its_place_and_what_came_before_it_only(kernel: str) -> None:
    model = built(f"encoder.mixer.kernel={kernel}")
    order = torch.tensor([0, 0, 3, 0, 1, 4, 0, 2, 0, 5])
    where = [2, 4, 5, 7, 9]
    coordinates = asked(order, where)
    entered: list[torch.Tensor] = []

    def enter(x: torch.Tensor) -> torch.Tensor:
        entered.append(x.detach().requires_grad_())
        return entered[-1]

    rows = torch.cat((pieces(1), torch.zeros(1, 5, dtype=torch.int64)), dim=1)
    with model.replace("embeddings.output", enter):
        states = model.encoder(rows, coordinates, InOrder())[0]
    weight = torch.randn(states.shape[1], generator=torch.Generator().manual_seed(0))
    for slot, place in enumerate(where):
        answer = states[LENGTH + slot] @ weight
        (gradient,) = torch.autograd.grad(answer, entered[0], retain_graph=True)
        reached = gradient[0].abs().sum(-1) > 0
        assert reached[:LENGTH].tolist() == (order < order[place]).tolist()
        assert reached[LENGTH:].tolist() == [other == slot for other in range(len(where))]
    for place in range(LENGTH):
        (gradient,) = torch.autograd.grad(states[place] @ weight, entered[0], retain_graph=True)
        reached = gradient[0].abs().sum(-1) > 0
        assert reached.tolist() == [*(order <= order[place]).tolist(), *[False] * len(where)]


def test_answers_do_not_depend_on_where_they_stand_in_the_row() -> None:
    model = built()
    order = torch.tensor([0, 0, 3, 0, 1, 4, 0, 2, 0, 5])
    rows = torch.cat((pieces(1), torch.zeros(1, 3, dtype=torch.int64)), dim=1)
    one = model.encoder(rows, asked(order, [2, 5, 9]), InOrder())
    other = model.encoder(rows, asked(order, [9, 2, 5]), InOrder())
    turned = other[:, [*range(LENGTH), LENGTH + 1, LENGTH + 2, LENGTH]]
    torch.testing.assert_close(one, turned, atol=1e-6, rtol=1e-6)


def test_a_batch_asks_for_what_stands_at_its_positions() -> None:
    recipe = toy("xlnet")
    batch = toy_batch(recipe, 0)
    (question,) = batch.questions.values()
    length = recipe.assembly.length
    width = batch.pieces.shape[1]
    row, place = question.where // width, question.where % width
    assert (place >= length).all()
    position = batch.coordinates.position
    # In a row that is read from its end, positions count down.
    about = (position[row, :length] == position[row, place][:, None]).int().argmax(1)
    weight = torch.ones_like(row) if question.weight is None else question.weight
    real = weight > 0
    assert torch.equal(batch.pieces[row[real], about[real]], question.target[real])
    turns = batch.coordinates.order
    assert torch.equal(turns[row[real], place[real]], turns[row[real], about[real]])
    chosen = np.zeros((len(batch.pieces), length), bool)
    chosen[row[real], about[real]] = True
    special = batch.pieces[:, :length].numpy() < 5
    assert ((turns[:, :length].numpy() > 0) == (chosen | special)).all()
    assert visibility_of(list(recipe.objectives.values())) == InOrder()
