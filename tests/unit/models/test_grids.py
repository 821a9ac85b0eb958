"""Weights of few bits: on a grid, near the original, and back from a file bit for bit."""

import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertwright.core.errors import UserError
from bertwright.models.quantized_weights import (
    QuantizationGrid,
    num_stored_bytes,
    pack_bits,
    pack_weight,
    quantization_steps,
    unpack_bits,
    unpack_weight,
)
from bertwright.models.saving import read_tensors, save_weights

SCHEMES = ("symmetric", "asymmetric")

grids = st.builds(
    QuantizationGrid,
    st.integers(2, 8),
    st.integers(1, 7),
    st.integers(1, 9),
    st.sampled_from(SCHEMES),
)


def random_weight(seed: int, rows: int = 6, columns: int = 8, shift: float = 0.3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator) * 0.1 + shift * 0.1


def scale_of_weights(grid: QuantizationGrid, weight: Tensor) -> Tensor:
    """The scale at every weight."""
    groups = grid.to_groups(weight)
    return grid.from_groups(grid.steps(groups).scale.expand_as(groups), weight.shape)


@given(grids, st.integers(0, 10**6), st.floats(-3, 3))
def test_rounding_is_near_idempotent_and_reversible(
    grid: QuantizationGrid, seed: int, shift: float
) -> None:
    weight = random_weight(seed, shift=shift)
    rounded = grid.round(weight)
    scale = scale_of_weights(grid, weight)
    # A scale has 16 bits, so it may exceed the exact one by a little.
    assert ((rounded - weight).abs() <= scale * (0.5 + 1e-4)).all()
    by_group = grid.to_groups(rounded).transpose(1, 2).flatten(2).flatten(0, 1)
    assert max(len(group.unique()) for group in by_group) <= 2**grid.bits
    packed = pack_weight(rounded, grid)
    assert packed is not None
    assert torch.equal(unpack_weight(packed, grid, rounded.shape), rounded)
    if grid.scheme == "symmetric":
        assert torch.equal(grid.round(rounded), rounded)
    groups = grid.to_groups(weight)
    steps = grid.steps(groups)
    assert torch.equal(steps.round(steps.round(groups)), steps.round(groups))


def test_halves_round_to_even() -> None:
    steps = quantization_steps(torch.tensor(-127.0), torch.tensor(127.0), 8, "symmetric")
    values = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 126.5, 127.5, 1000.0, -1000.0])
    expected = torch.tensor([-2.0, -2.0, -0.0, 0.0, 2.0, 2.0, 126.0, 127.0, 127.0, -127.0])
    assert steps.scale == 1
    assert torch.equal(steps.quantize(values), expected)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_scales_equal_the_published_formulas(scheme: str) -> None:
    low, high = torch.tensor([-0.3, 0.2, 0.0]), torch.tensor([0.7, 0.9, 0.0])
    steps = quantization_steps(low, high, 4, scheme)
    # The range always includes 0.
    expected = [0.7 / 7, 0.9 / 7, 1.0] if scheme == "symmetric" else [1.0 / 15, 0.9 / 15, 1.0]
    torch.testing.assert_close(steps.scale, torch.tensor(expected), rtol=2**-14, atol=0)
    if scheme == "asymmetric":
        assert steps.min_level.tolist() == [-4.0, 0.0, 0.0]
        assert (steps.max_level - steps.min_level).tolist() == [15.0] * 3


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bits", [2, 8])
def test_zeros_are_on_every_grid(bits: int, scheme: str) -> None:
    grid, zeros = QuantizationGrid(bits, 2, 3, scheme), torch.zeros(4, 7)
    assert torch.equal(grid.round(zeros), zeros)
    packed = pack_weight(zeros, grid)
    assert packed is not None
    assert torch.equal(packed["scale"], torch.ones(2, 3))
    assert torch.equal(unpack_weight(packed, grid, zeros.shape), zeros)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bits", range(2, 9))
def test_no_scale_grows_when_a_group_is_split(bits: int, scheme: str) -> None:
    weight = random_weight(1, 32, 64)
    for larger, smaller in pairwise([(32, 64), (8, 64), (1, 64), (1, 32), (1, 8), (1, 1)]):
        before, after = (
            scale_of_weights(QuantizationGrid(bits, *size, scheme), weight)
            for size in (larger, smaller)
        )
        assert (after <= before).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_mean_error_grows_with_fewer_bits_and_groups(scheme: str) -> None:
    weight = torch.stack([random_weight(seed, 16, 64) for seed in range(20)]).flatten(0, 1)
    errors = {
        (bits, groups): (QuantizationGrid(bits, 1, 64 // groups, scheme).round(weight) - weight)
        .abs()
        .mean()
        .item()
        for bits in (8, 6, 4, 3, 2)
        for groups in (1, 4, 16)
    }
    for (bits, groups), error in errors.items():
        fewer = {8: 6, 6: 4, 4: 3, 3: 2}.get(bits)
        assert fewer is None or error < errors[fewer, groups]
        assert groups == 1 or error < errors[bits, groups // 4]


@given(st.integers(2, 8), st.lists(st.integers(0, 255), max_size=50))
def test_bits_are_packed_without_gaps(bits: int, numbers: list[int]) -> None:
    codes = torch.tensor([number % 2**bits for number in numbers], dtype=torch.uint8)
    packed = pack_bits(codes, bits)
    assert len(packed) == -(-len(codes) * bits // 8)
    assert torch.equal(unpack_bits(packed, bits, len(codes)), codes)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bits", [2, 3, 5, 8])
def test_a_file_has_the_expected_size_and_content(tmp_path: Path, bits: int, scheme: str) -> None:
    rows, columns, group = 24, 40, 16
    module, grid = nn.Linear(columns, rows), QuantizationGrid(bits, 1, group, scheme)
    module.weight.data = grid.round(random_weight(3, rows, columns))
    path = tmp_path / "weights.safetensors"
    save_weights(path, module, {"weight": grid})
    header = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    num_weights, num_groups = rows * columns, rows * 3
    zeros = num_groups if scheme == "asymmetric" else 0
    num_bytes = num_weights * bits // 8 + 4 * num_groups + zeros + 4 * rows
    assert path.stat().st_size - header == num_bytes == num_stored_bytes(module, {"weight": grid})
    tensors = read_tensors(path)
    assert {name: tensor.dtype for name, tensor in tensors.items()} == dict.fromkeys(
        ("weight", "bias"), torch.float32
    )
    assert all(torch.equal(tensors[name], tensor) for name, tensor in module.state_dict().items())


def test_weights_off_the_grid_are_stored_unpacked(tmp_path: Path) -> None:
    module, grid = nn.Linear(8, 4), QuantizationGrid(4, 1, 8)
    assert pack_weight(module.weight.detach(), grid) is None
    assert num_stored_bytes(module, {"weight": grid}) == num_stored_bytes(module) == 4 * (8 * 4 + 4)
    save_weights(tmp_path / "w.safetensors", module, {"weight": grid})
    assert torch.equal(read_tensors(tmp_path / "w.safetensors")["weight"], module.weight)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    module, grid, path = nn.Linear(8, 4), QuantizationGrid(4, 1, 8), tmp_path / "w.safetensors"
    module.weight.data = grid.round(module.weight.data)
    save_weights(path, module, {"weight": grid})
    metadata = json.dumps({"weight": {**asdict(grid), "shape": [4, 8]}})
    original = load_file(path)
    for changed in ({"weight.codes": original["weight.codes"][:3]}, {"weight.codes": None}):
        tensors = {name: t for name, t in (original | changed).items() if t is not None}
        save_file(tensors, path, metadata={"packed": metadata})
        with pytest.raises(UserError, match="damaged"):
            read_tensors(path)
