"""The public names: each is there, and found by those who look."""

import pytest

import bertwright as bw


@pytest.mark.parametrize("name", bw.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(bw, name) is not None
    assert name in dir(bw)


def test_a_name_that_is_not_there_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="module 'bertwright' has no attribute 'lode'"):
        bw.lode  # noqa: B018
