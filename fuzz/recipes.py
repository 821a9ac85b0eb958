"""Random overrides and files of recipes, settings of fine-tuning, and method files."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import yaml

from bertwright.compression.method import CompressionMethod
from bertwright.core.config import Config
from bertwright.models.costs import num_parameters_by_part
from bertwright.recipes import Recipe
from bertwright.recipes.loading import apply_overrides, system_names
from bertwright.tasks.finetuning.config import FineTuningConfig
from fuzz.case import Case, Kind
from fuzz.junk import TEXTS, as_yaml, changed, changed_text, junk
from fuzz.workspace import Workspace

SYSTEMS = system_names()


class Overrides(Kind):
    """Overrides ``key.path=value`` of every system."""

    name: ClassVar[str] = "overrides"
    weight: ClassVar[float] = 30

    def __init__(self) -> None:
        self._paths = {
            name: list(_paths(Recipe.load(f"{name}-tiny").as_dict())) for name in SYSTEMS
        }
        self._kinds = sorted({kind for axis in Config.__subclasses__() for kind in axis.kinds()})

    def case(self, rng: random.Random) -> Case:
        system = rng.choice(SYSTEMS)
        overrides = [
            self._change(rng, self._paths[system]) for _ in range(rng.choice((1, 1, 2, 3)))
        ]
        return Case(f"{system}-tiny {overrides}", lambda: _use_recipe(f"{system}-tiny", overrides))

    def _change(self, rng: random.Random, paths: list[str]) -> str:
        path = rng.choice(paths)
        change = rng.randrange(12)
        if change == 0:
            return rng.choice(TEXTS) + as_yaml(junk(rng))
        if change == 1:
            return f"{path}.{rng.choice(TEXTS)}={as_yaml(junk(rng))}"
        if change == 2:
            path = path.rpartition(".")[0] or path
        if change < 6:
            return f"{path}={rng.choice(self._kinds)}"
        if change == 6:
            return f"{path}={{kind: {rng.choice(self._kinds)}}}"
        return f"{path}={as_yaml(junk(rng))}"


class Recipes(Kind):
    """Recipe files with a random change."""

    name: ClassVar[str] = "recipe files"
    weight: ClassVar[float] = 15

    def __init__(self, workspace: Workspace, scratch: Path) -> None:
        self._file = scratch / "recipe.yaml"
        self._recipes = {name: Recipe.load(f"{name}-tiny") for name in SYSTEMS}

    def case(self, rng: random.Random) -> Case:
        recipe = self._recipes[rng.choice(SYSTEMS)]
        if rng.random() < 0.5:
            text = changed_text(rng, recipe.as_yaml())
        elif rng.random() < 0.5:
            text = as_yaml(changed(rng, recipe.as_dict()))
        else:
            text = f"extends: {rng.choice(('bert-tiny', 'recipe.yaml', as_yaml(junk(rng))))}\n"
            text = changed_text(
                rng, text + yaml.safe_dump({"steps": 5, "optimiser": {"learning_rate": 1}})
            )
        self._file.write_text(text, encoding="utf-8", errors="surrogatepass")
        return Case(text, lambda: _use_recipe(self._file, []))


class Settings(Kind):
    """Settings of fine-tuning, and files of compression methods."""

    name: ClassVar[str] = "settings"
    weight: ClassVar[float] = 5

    def __init__(self, workspace: Workspace, scratch: Path) -> None:
        self._file = scratch / "method.yaml"
        self._paths = list(_paths(FineTuningConfig().model_dump(mode="json")))
        self._method = CompressionMethod.load("output-distillation").model_dump(
            mode="json", by_alias=True
        )

    def case(self, rng: random.Random) -> Case:
        if rng.random() < 0.5:
            text = as_yaml(changed(rng, self._method))
            self._file.write_text(text, encoding="utf-8", errors="surrogatepass")
            return Case(text, lambda: CompressionMethod.load(str(self._file)))
        change = f"{rng.choice(self._paths)}={as_yaml(junk(rng))}"
        return Case(change, lambda: FineTuningConfig.from_settings(apply_overrides({}, [change])))


def _use_recipe(recipe: str | Path, overrides: list[str]) -> None:
    """Load a recipe and count its parameters."""
    num_parameters_by_part(Recipe.load(recipe, *overrides))


def _paths(data: Any, prefix: str = "") -> Iterator[str]:
    for name, value in data.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _paths(value, f"{prefix}{name}.")
