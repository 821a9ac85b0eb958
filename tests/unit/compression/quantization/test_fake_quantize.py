"""Fake quantization: the values of an integer product, the gradients without rounding."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from bertwright.models.quantized_weights import QuantizationGrid, quantization_steps
from bertwright.tasks.adapters.quantization.fake_quantize import (
    FakeQuantizedLinear,
    PerTokenFakeQuantize,
    StaticFakeQuantize,
    fake_quantize,
    fake_quantize_weight,
)
from bertwright.tasks.adapters.quantization.granularity import Granularity
from bertwright.tasks.adapters.quantization.observers import (
    MovingAverageObserverConfig,
    ObserverConfig,
    percentile,
)

SCHEMES = ("symmetric", "asymmetric")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("group", [1, 3])
def test_a_quantized_layer_is_an_integer_product(scheme: str, group: int) -> None:
    linear, grid = nn.Linear(16, 6), QuantizationGrid(8, group, 16, "symmetric")
    weight = grid.round(linear.weight.detach())
    linear.weight.data = weight
    x = normal(5, 16)
    quantizer = StaticFakeQuantize(1, 8, scheme, True)
    quantizer.low.fill_(-1.5)
    quantizer.high.fill_(2.0)
    quantizer.is_enabled.fill_(True)
    outputs = FakeQuantizedLinear(linear, quantizer, nn.Identity())(x)
    x_steps = quantization_steps(quantizer.low, quantizer.high, 8, scheme)
    steps, levels = grid.levels_if_on_grid(weight)
    products = x_steps.quantize(x).to(torch.int32).numpy() @ levels.to(torch.int32).numpy().T
    assert products.dtype == np.int32
    scales = steps.scale.expand(-1, grid.rows, -1, -1).flatten()
    exact = torch.from_numpy(products) * scales * x_steps.scale + linear.bias
    torch.testing.assert_close(outputs, exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("clipped", [True, False])
def test_gradients_pass_through_within_the_range(clipped: bool) -> None:
    values = torch.tensor([-2.0, -1.0, 0.3, 0.9, 1.01, 5.0], requires_grad=True)
    steps = quantization_steps(torch.tensor(-1.0), torch.tensor(1.0), 4, "symmetric")
    rounded = fake_quantize(values, steps, clipped)
    assert torch.equal(rounded.detach(), steps.round(values.detach()))
    weights = torch.arange(1.0, 7.0)
    (rounded * weights).sum().backward()
    passed = [not clipped, True, True, True, True, not clipped]
    assert torch.equal(values.grad, weights * torch.tensor(passed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("granularity", ["tensor", "row", {"kind": "group", "size": 5}])
def test_a_weight_is_rounded_but_its_gradient_is_not(dtype, granularity) -> None:
    weight = normal(6, 12).to(dtype).requires_grad_()
    grid = QuantizationGrid(4, *Granularity.parse(granularity).group_shape(weight.shape, 3))
    rounded = fake_quantize_weight(weight, grid)
    assert rounded.dtype == dtype
    assert torch.equal(rounded.detach(), grid.round(weight.detach()).to(dtype))
    rounded.sum().backward()
    assert torch.equal(weight.grad, torch.ones_like(weight))


@pytest.mark.parametrize(
    ("granularity", "group"),
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
def test_group_shapes(granularity, group: tuple[int, int]) -> None:
    assert Granularity.parse(granularity).group_shape((12, 20), 3) == group


def test_the_last_group_of_one_matrix_may_be_smaller() -> None:
    granularity = Granularity.parse({"kind": "group", "size": 5, "axis": "outputs"})
    assert granularity.group_shape((12, 20), 1) == (5, 20)


@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=60), st.floats(50.1, 100))
def test_a_percentile_is_the_first_value_of_that_rank(values, percent: float) -> None:
    value = percentile(torch.tensor([values]), percent).item()
    below = np.mean(np.array(values) <= value)
    less = [other for other in values if other < value]
    assert below >= percent / 100 - 1e-6
    assert not less or np.mean(np.array(values) <= max(less)) < percent / 100


@pytest.mark.parametrize("scheme", SCHEMES)
def test_observed_ranges(scheme: str) -> None:
    batches = [normal(50, 2, 3, seed=n) * (n + 1) - 0.5 for n in range(4)]
    high = torch.stack([b.amax((0, 2)) for b in batches])
    low = torch.stack([b.amin((0, 2)) for b in batches])
    if scheme == "symmetric":
        high = torch.maximum(high, -low)
        low = -high
    decay = 0.9
    weights = torch.tensor([decay**n for n in reversed(range(4))])[:, None]
    ranges = {
        "extremes": (low.amin(0), high.amax(0)),
        "moving": tuple((ends * weights).sum(0) / weights.sum() for ends in (low, high)),
    }
    for kind, expected_range in ranges.items():
        settings = {"kind": kind} | ({"decay": decay} if kind == "moving" else {})
        observer = ObserverConfig.parse(settings).build(2, scheme)
        for batch in batches:
            observer.update(batch)
        observer.update(batches[0][:0])
        assert int(observer.count) == 4
        for value, expected in zip(observer.value_range(), expected_range, strict=True):
            torch.testing.assert_close(value, expected)
    full, narrow = (
        ObserverConfig.parse({"kind": "percentile", "percentile": percent}).build(2, scheme)
        for percent in (100, 90)
    )
    plain = MovingAverageObserverConfig().build(2, scheme)
    for observer in (full, narrow, plain):
        observer.update(batches[0])
    assert torch.equal(full.value_range()[1], plain.value_range()[1])
    assert (narrow.value_range()[1] < plain.value_range()[1]).all()
    assert (narrow.value_range()[0] > plain.value_range()[0]).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_per_token_ranges_do_not_depend_on_neighbours(scheme: str) -> None:
    quantizer = PerTokenFakeQuantize(2, 4, scheme, True)
    x = normal(2, 3, 8)
    assert torch.equal(quantizer(x), x)
    quantizer.is_enabled.fill_(True)
    rounded = quantizer(x)
    assert not torch.equal(rounded, x)
    assert torch.equal(quantizer(x[1:, 2:]), rounded[1:, 2:])
    assert torch.equal(quantizer(100 * x)[0, 0], quantizer(100 * x[:1, :1])[0, 0])
