"""A table of tensor names works in both directions."""

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.families.registry import FAMILIES
from bertwright.interop.huggingface.head_types import POOLER
from bertwright.interop.huggingface.tensor_names import (
    TensorNameTable,
    from_stock_names,
    to_stock_names,
)

TABLE: TensorNameTable = (
    ("output.bias", ("decoder.bias",)),
    ("output.table", ("decoder",)),
    ("blocks.#.projection", ("layer.#.query", "layer.#.key", "layer.#.value")),
)


def test_concatenated_parts_keep_their_order() -> None:
    parts = {
        f"layer.7.{name}.weight": torch.full((2, 3), float(i))
        for i, name in enumerate(("query", "key", "value"))
    }
    ((name, fused),) = from_stock_names(TABLE, dict(reversed(parts.items()))).items()
    assert name == "blocks.7.projection.weight"
    assert fused[:, 0].tolist() == [0, 0, 1, 1, 2, 2]


def test_names_round_trip() -> None:
    ours = {
        "output.bias": torch.rand(5),
        "output.table.weight": torch.rand(5, 4),
        "blocks.0.projection.weight": torch.rand(12, 4),
        "blocks.10.projection.bias": torch.rand(12),
    }
    imported = from_stock_names(TABLE, to_stock_names(TABLE, ours))
    assert imported.keys() == ours.keys()
    assert all(torch.equal(imported[name], ours[name]) for name in ours)


def test_the_first_matching_row_counts() -> None:
    assert list(from_stock_names(TABLE, {"decoder.bias": torch.zeros(1)})) == ["output.bias"]


def test_a_missing_part_is_reported() -> None:
    with pytest.raises(UserError, match=r"layer\.0\.key\.bias is missing"):
        from_stock_names(
            TABLE, {f"layer.0.{name}.bias": torch.zeros(2) for name in ("query", "value")}
        )


@pytest.mark.parametrize("name", ["qa_outputs.weight", "layer.x.query.weight", "layer.0"])
def test_an_unknown_name_is_reported(name: str) -> None:
    with pytest.raises(UserError, match=name):
        from_stock_names(TABLE, {name: torch.zeros(2)})


@pytest.mark.parametrize(
    ("family", "head_type"),
    [
        (family, head_type)
        for family in map(FAMILIES.__getitem__, FAMILIES)
        for head_type in (*family.pretraining_head_types.values(), *family.task_heads)
    ],
    ids=lambda value: value if isinstance(value, str) else value.model_type,
)
def test_every_name_of_every_stock_class_round_trips(family: ModelFamily, head_type: str) -> None:
    table = family.name_table(head_type)
    # The pooler is part of the head in some classes.
    ours = {f"{name}.weight".replace("#", "3") for name, _ in table if name != POOLER}
    imported = from_stock_names(
        table, to_stock_names(table, {name: torch.zeros(6, 2) for name in ours})
    )
    assert imported.keys() == ours
