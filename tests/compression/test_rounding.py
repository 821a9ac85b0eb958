"""Rounding within a network: the numbers of an integer product, the gradients of none."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from bertwright.compression.quantisation.granularity import Granularity
from bertwright.compression.quantisation.observers import Moving, Observer, reached
from bertwright.compression.quantisation.rounding import (
    ByToken,
    RoundedLinear,
    WithinRange,
    rounded,
    rounded_weight,
)
from bertwright.model.grids import Grid, steps_within

SCHEMES = ("symmetric", "asymmetric")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("group", [1, 3])
def test_a_rounded_layer_is_an_integer_product(scheme: str, group: int) -> None:
    linear, grid = nn.Linear(16, 6), Grid(8, group, 16, "symmetric")
    weight = grid.rounded(linear.weight.detach())
    linear.weight.data = weight
    x = drawn(5, 16)
    reads = WithinRange(1, 8, scheme, True)
    reads.low.fill_(-1.5)
    reads.high.fill_(2.0)
    reads.on.fill_(True)
    found = RoundedLinear(linear, reads, nn.Identity())(x)
    of_x = steps_within(reads.low, reads.high, 8, scheme)
    steps, levels = grid.standing(weight)
    products = of_x.levels(x).to(torch.int32).numpy() @ levels.to(torch.int32).numpy().T
    assert products.dtype == np.int32
    by_row = steps.scale.expand(-1, grid.rows, -1, -1).flatten()
    exact = torch.from_numpy(products) * by_row * of_x.scale + linear.bias
    torch.testing.assert_close(found, exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("clipped", [True, False])
def test_gradients_pass_through_but_not_from_beyond(clipped: bool) -> None:
    values = torch.tensor([-2.0, -1.0, 0.3, 0.9, 1.01, 5.0], requires_grad=True)
    steps = steps_within(torch.tensor(-1.0), torch.tensor(1.0), 4, "symmetric")
    found = rounded(values, steps, clipped)
    assert torch.equal(found.detach(), steps.rounded(values.detach()))
    weights = torch.arange(1.0, 7.0)
    (found * weights).sum().backward()
    passed = [not clipped, True, True, True, True, not clipped]
    assert torch.equal(values.grad, weights * torch.tensor(passed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("by", ["tensor", "row", {"kind": "group", "size": 5}])
def test_a_weight_is_on_its_grid_and_learns_as_if_it_were_not(dtype, by) -> None:
    weight = drawn(6, 12).to(dtype).requires_grad_()
    grid = Grid(4, *Granularity.choose(by).group(weight.shape, 3))
    found = rounded_weight(weight, grid)
    assert found.dtype == dtype
    assert torch.equal(found.detach(), grid.rounded(weight.detach()).to(dtype))
    found.sum().backward()
    assert torch.equal(weight.grad, torch.ones_like(weight))


@pytest.mark.parametrize(
    ("by", "group"),
    [
        ("tensor", (4, 20)),
        ("row", (1, 20)),
        ({"kind": "group", "size": 8}, (1, 8)),
        ({"kind": "group", "size": 64}, (1, 20)),
        ({"kind": "group", "size": 2, "axis": "outputs"}, (2, 20)),
        ({"kind": "group", "size": 3, "axis": "outputs"}, (2, 20)),
        ({"kind": "group", "size": 64, "axis": "outputs"}, (4, 20)),
    ],
)
def test_granularities_are_groups_of_these_shapes(by, group: tuple[int, int]) -> None:
    assert Granularity.choose(by).group((12, 20), 3) == group


def test_of_one_matrix_the_last_group_may_be_smaller() -> None:
    by = Granularity.choose({"kind": "group", "size": 5, "axis": "outputs"})
    assert by.group((12, 20), 1) == (5, 20)


@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=60), st.floats(50.1, 100))
def test_a_percentile_is_the_first_that_enough_do_not_exceed(values, share: float) -> None:
    found = reached(torch.tensor([values]), share).item()
    below = np.mean(np.array(values) <= found)
    less = [value for value in values if value < found]
    assert below >= share / 100 - 1e-6
    assert not less or np.mean(np.array(values) <= max(less)) < share / 100


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_observers_say_of_what_they_have_seen(scheme: str) -> None:
    batches = [drawn(50, 2, 3, seed=n) * (n + 1) - 0.5 for n in range(4)]
    high = torch.stack([b.amax((0, 2)) for b in batches])
    low = torch.stack([b.amin((0, 2)) for b in batches])
    if scheme == "symmetric":
        high = torch.maximum(high, -low)
        low = -high
    decay = 0.9
    weights = torch.tensor([decay**n for n in reversed(range(4))])[:, None]
    of = {
        "extremes": (low.amin(0), high.amax(0)),
        "moving": tuple((each * weights).sum(0) / weights.sum() for each in (low, high)),
    }
    for kind, (least, most) in of.items():
        settings = {"kind": kind} | ({"decay": decay} if kind == "moving" else {})
        observed = Observer.choose(settings).build(2, scheme)
        for batch in batches:
            observed.see(batch)
        observed.see(batches[0][:0])
        assert int(observed.count) == 4
        for own, expected in zip(observed.range(), (least, most), strict=True):
            torch.testing.assert_close(own, expected)
    whole, most_of_it = (
        Observer.choose({"kind": "percentile", "share": share}).build(2, scheme)
        for share in (100, 90)
    )
    plain = Moving().build(2, scheme)
    for observed in (whole, most_of_it, plain):
        observed.see(batches[0])
    assert torch.equal(whole.range()[1], plain.range()[1])
    assert (most_of_it.range()[1] < plain.range()[1]).all()
    assert (most_of_it.range()[0] > plain.range()[0]).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_token_is_rounded_whatever_stands_beside_it(scheme: str) -> None:
    rounding = ByToken(2, 4, scheme, True)
    x = drawn(2, 3, 8)
    assert torch.equal(rounding(x), x)
    rounding.on.fill_(True)
    found = rounding(x)
    assert not torch.equal(found, x)
    assert torch.equal(rounding(x[1:, 2:]), found[1:, 2:])
    assert torch.equal(rounding(100 * x)[0, 0], rounding(100 * x[:1, :1])[0, 0])
