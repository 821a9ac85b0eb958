"""Query tokens attend to earlier tokens, are never attended to, and know their position."""

import numpy as np
import pytest
import torch

from bertwright.models import Model
from bertwright.modules.attention.mask import CausalVisibility, PermutationVisibility
from bertwright.modules.token_tensors import TokenInfo
from bertwright.objectives.objective import combined_visibility
from toy_recipes import VOCABULARY, shaken, toy, toy_batch

LENGTH = 10


def build_model(*overrides: str) -> Model:
    return shaken(Model.build(toy("xlnet", *overrides), VOCABULARY), 0.1)


def random_tokens(batch_size: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, VOCABULARY, (batch_size, LENGTH), generator=generator)


def two_stream_info(order: torch.Tensor, query_positions: list[int]) -> TokenInfo:
    """Return the attributes of one sequence and of query tokens at some positions."""
    index = torch.tensor(query_positions)
    position_ids = torch.cat((torch.arange(LENGTH), index))[None]
    ranks = torch.cat((order, order[index]))[None]
    is_query = torch.arange(LENGTH + len(query_positions))[None] >= LENGTH
    return TokenInfo(
        torch.arange(LENGTH + len(query_positions))[None],
        position_ids,
        factorisation_order=ranks,
        is_query_stream=is_query,
    )


def test_content_in_text_order_is_causal() -> None:
    model = build_model()
    order = torch.arange(LENGTH)
    tokens = torch.cat((random_tokens(1), torch.zeros(1, 3, dtype=torch.int64)), dim=1)
    both = model.encoder(tokens, two_stream_info(order, [2, 5, 9]), PermutationVisibility())
    causal = model.encoder(random_tokens(1), visibility=CausalVisibility())
    torch.testing.assert_close(both[:, :LENGTH], causal, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kernel", ["explicit", "sdpa"])
def test_a_query_attends_to_earlier_tokens_only(kernel: str) -> None:
    model = build_model(f"encoder.mixer.kernel={kernel}")
    order = torch.tensor([0, 0, 3, 0, 1, 4, 0, 2, 0, 5])
    query_positions = [2, 4, 5, 7, 9]
    token_info = two_stream_info(order, query_positions)
    inputs: list[torch.Tensor] = []

    def record_input(x: torch.Tensor) -> torch.Tensor:
        inputs.append(x.detach().requires_grad_())
        return inputs[-1]

    tokens = torch.cat((random_tokens(1), torch.zeros(1, 5, dtype=torch.int64)), dim=1)
    with model.replace("embeddings.output", record_input):
        states = model.encoder(tokens, token_info, PermutationVisibility())[0]
    weight = torch.randn(states.shape[1], generator=torch.Generator().manual_seed(0))
    for number, position in enumerate(query_positions):
        output = states[LENGTH + number] @ weight
        (gradient,) = torch.autograd.grad(output, inputs[0], retain_graph=True)
        is_reached = gradient[0].abs().sum(-1) > 0
        assert is_reached[:LENGTH].tolist() == (order < order[position]).tolist()
        assert is_reached[LENGTH:].tolist() == [
            other_number == number for other_number in range(len(query_positions))
        ]
    for position in range(LENGTH):
        (gradient,) = torch.autograd.grad(states[position] @ weight, inputs[0], retain_graph=True)
        is_reached = gradient[0].abs().sum(-1) > 0
        assert is_reached.tolist() == [
            *(order <= order[position]).tolist(),
            *[False] * len(query_positions),
        ]


def test_query_order_does_not_matter() -> None:
    model = build_model()
    order = torch.tensor([0, 0, 3, 0, 1, 4, 0, 2, 0, 5])
    tokens = torch.cat((random_tokens(1), torch.zeros(1, 3, dtype=torch.int64)), dim=1)
    expected = model.encoder(tokens, two_stream_info(order, [2, 5, 9]), PermutationVisibility())
    other = model.encoder(tokens, two_stream_info(order, [9, 2, 5]), PermutationVisibility())
    reordered = other[:, [*range(LENGTH), LENGTH + 1, LENGTH + 2, LENGTH]]
    torch.testing.assert_close(expected, reordered, atol=1e-6, rtol=1e-6)


def test_targets_are_the_tokens_at_the_query_positions() -> None:
    recipe = toy("xlnet")
    batch = toy_batch(recipe, 0)
    (targets,) = batch.targets.values()
    length = recipe.assembly.length
    width = batch.token_ids.shape[1]
    sequence, index = targets.positions // width, targets.positions % width
    assert (index >= length).all()
    position_ids = batch.token_info.position_ids
    # In a sequence read backward, positions count down.
    target_index = (
        (position_ids[sequence, :length] == position_ids[sequence, index][:, None]).int().argmax(1)
    )
    weights = torch.ones_like(sequence) if targets.weights is None else targets.weights
    is_real = weights > 0
    assert torch.equal(
        batch.token_ids[sequence[is_real], target_index[is_real]], targets.labels[is_real]
    )
    ranks = batch.token_info.factorisation_order
    assert torch.equal(
        ranks[sequence[is_real], index[is_real]], ranks[sequence[is_real], target_index[is_real]]
    )
    is_target = np.zeros((len(batch.token_ids), length), bool)
    is_target[sequence[is_real], target_index[is_real]] = True
    is_special = batch.token_ids[:, :length].numpy() < 5
    # Both halves have their own order: unmasked tokens first, then the others. The second half
    # attends to all of the first, and the first to nothing of the second.
    halves = np.split(ranks[:, :length].numpy(), 2, axis=1)
    for half, is_later in zip(halves, np.split(is_target | is_special, 2, axis=1), strict=True):
        assert ((half > half.min()) == is_later).all()
    assert halves[0].max() < halves[1].min()
    assert combined_visibility(list(recipe.objectives.values())) == PermutationVisibility()
