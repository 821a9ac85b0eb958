"""Values of an output type stay as typed, even if YAML reads them otherwise."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from bertwright.core.config import Settings
from bertwright.recipes.loading import apply_overrides

TYPED = ["yes", "no", "on", "off", "true", "'null'", "1", "007", "0x1F", "1.0", "1e-3", "1_000"]
TYPED += ["2024-01-01", "12:30:00", ".inf", "'1'", '"yes"', "plain words"]


class ExampleSettings(Settings):
    word: str = ""
    maybe: str | None = None
    either: Literal["all"] | dict[str, Annotated[float, Field(ge=0)]] | None = None
    words: dict[str, str] = Field(default_factory=dict[str, str])
    listed: tuple[str, ...] = ()
    number: float | None = None
    whole: int = 0
    switch: bool = False


def read(*changes: str) -> Any:
    return ExampleSettings.model_validate(apply_overrides({}, changes, as_text=True))


@pytest.mark.parametrize("typed", TYPED)
def test_text_stays_as_typed(typed: str) -> None:
    text = typed.strip("'\"")
    assert read(f"word={typed}").word == text
    assert read(f"words.b={typed}").words == {"b": text}
    assert read(f"words={{{typed}: {typed}, b: c}}").words == {text: text, "b": "c"}
    assert read(f"listed=[{typed}, x]").listed == (text, "x")
    assert read(f"either={{{typed}: 2, b: 1e-3}}").either == {text: 2.0, "b": 1e-3}


def test_other_values_are_converted() -> None:
    settings = read("number=1e3", "switch=yes", "maybe=null", "either=all", "whole=1_000")
    assert (settings.number, settings.switch, settings.maybe, settings.either) == (
        1000.0,
        True,
        None,
        "all",
    )
    assert settings.whole == 1000
    assert read("maybe=no").maybe == "no"
    assert read("number=null", "word=a", "word=1").word == "1"
