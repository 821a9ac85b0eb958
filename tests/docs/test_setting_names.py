"""Every setting that a how-to guide or tutorial names exists."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

from bertwright.core.config import Settings
from checkout import CHECKOUT

GUIDES = sorted(
    path
    for folder in ("how-to", "tutorials", "concepts")
    for path in (CHECKOUT / "docs" / folder).glob("*.md")
)
ROOTS = (
    "adaptation|assembly|calibration|decoder|encoder|head|objectives|optimiser|output|output_type|"
    "phases|schedule|vectors"
)
SETTING = re.compile(rf"(?<![\w./-])((?:{ROOTS})(?:\.(?!np[yz]\b|json|tsv)[\w-]+)+)(?![\w(/])")
MAPPINGS = {"objectives", "words", "weights"}
"""Settings whose keys are names of the user's or of objectives."""


def subclasses(base: type[Settings]) -> Iterator[type[Settings]]:
    for subclass in base.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


@pytest.fixture(scope="module")
def fields() -> set[str]:
    """The names of all fields of all settings."""
    for package in ("recipes", "tasks"):
        folder = import_module(f"bertwright.{package}")
        for module in walk_packages(folder.__path__, f"{folder.__name__}."):
            import_module(module.name)
    return {name for settings in subclasses(Settings) for name in settings.model_fields}


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_settings_in_guides_exist(guide: Path, fields: set[str]) -> None:
    names = [match.split(".") for match in SETTING.findall(guide.read_text())]
    unknown = [
        ".".join(name)
        for name in names
        if name[-1] not in fields | {"KEY"} and name[-2] not in MAPPINGS
    ]
    assert not unknown
