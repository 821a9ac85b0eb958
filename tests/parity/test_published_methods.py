"""Every compression method has the students, losses and constants of its paper."""

from pathlib import Path

import pytest

from bertwright.compression.method import METHODS_PACKAGE, CompressionMethod, resource_names
from bertwright.recipes.loading import read_yaml

TABLE = read_yaml(Path(__file__).parent / "published_methods.yaml")


def test_every_method_has_an_entry() -> None:
    assert set(TABLE) == set(resource_names(METHODS_PACKAGE))


@pytest.mark.parametrize("name", TABLE)
def test_method_is_the_published_one(name: str) -> None:
    method, entry = CompressionMethod.load(name), TABLE[name]
    assert entry["source"]
    published = CompressionMethod.model_validate({**entry, "description": method.description})
    assert method.model_copy(update={"source": entry["source"]}) == published
