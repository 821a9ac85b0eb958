"""Published settings of fine-tuning, in a YAML file each."""

from importlib import resources
from pathlib import Path
from typing import Any, cast

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.recipes.loading import read_yaml

FOLDER = Path(str(resources.files(__name__)))


def published_names() -> list[str]:
    """Return the names of all published settings."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def published_settings(name: str) -> dict[str, Any]:
    """Return published settings by name; UserError for an unknown name."""
    if name not in published_names():
        raise UserError(
            f"settings: there are no published settings {name!r}"
            f"{did_you_mean(name, published_names())}"
        )
    return cast(dict[str, Any], read_yaml(FOLDER / f"{name}.yaml")["settings"])
