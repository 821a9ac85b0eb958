"""Recipes: overrides of every key, their files, and the settings of tasks and methods."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import yaml

from bertwright.axes import Choice
from bertwright.compression.method import Method
from bertwright.model.counting import parameters_by_part
from bertwright.recipes import Recipe
from bertwright.recipes.loading import changed as with_changes
from bertwright.recipes.loading import systems
from bertwright.tasks.finetuning_settings import FineTuning
from fuzz.case import Case, Kind
from fuzz.junk import TEXTS, as_yaml, changed, changed_text, junk
from fuzz.workspace import Workspace

SYSTEMS = systems()


class Overrides(Kind):
    """``key.path=value`` on every system."""

    name: ClassVar[str] = "overrides"
    weight: ClassVar[float] = 30

    def __init__(self) -> None:
        self._paths = {
            name: list(_paths(Recipe.load(f"{name}-tiny").as_dict())) for name in SYSTEMS
        }
        self._kinds = sorted({kind for axis in Choice.__subclasses__() for kind in axis.kinds()})

    def case(self, draw: random.Random) -> Case:
        system = draw.choice(SYSTEMS)
        changes = [
            self._change(draw, self._paths[system]) for _ in range(draw.choice((1, 1, 2, 3)))
        ]
        return Case(f"{system}-tiny {changes}", lambda: _used(f"{system}-tiny", changes))

    def _change(self, draw: random.Random, paths: list[str]) -> str:
        path = draw.choice(paths)
        act = draw.randrange(12)
        if act == 0:
            return draw.choice(TEXTS) + as_yaml(junk(draw))
        if act == 1:
            return f"{path}.{draw.choice(TEXTS)}={as_yaml(junk(draw))}"
        if act == 2:
            path = path.rpartition(".")[0] or path
        if act < 6:
            return f"{path}={draw.choice(self._kinds)}"
        if act == 6:
            return f"{path}={{kind: {draw.choice(self._kinds)}}}"
        return f"{path}={as_yaml(junk(draw))}"


class Recipes(Kind):
    """Files of recipes with a change somewhere."""

    name: ClassVar[str] = "recipe files"
    weight: ClassVar[float] = 15

    def __init__(self, made: Workspace, scratch: Path) -> None:
        self._file = scratch / "recipe.yaml"
        self._whole = {name: Recipe.load(f"{name}-tiny") for name in SYSTEMS}

    def case(self, draw: random.Random) -> Case:
        recipe = self._whole[draw.choice(SYSTEMS)]
        if draw.random() < 0.5:
            text = changed_text(draw, recipe.as_yaml())
        elif draw.random() < 0.5:
            text = as_yaml(changed(draw, recipe.as_dict()))
        else:
            text = f"extends: {draw.choice(('bert-tiny', 'recipe.yaml', as_yaml(junk(draw))))}\n"
            text = changed_text(draw, text + yaml.safe_dump({"steps": 5, "optimiser": {"rate": 1}}))
        self._file.write_text(text, encoding="utf-8", errors="surrogatepass")
        return Case(text, lambda: _used(self._file, []))


class Settings(Kind):
    """Settings of fine-tuning, and files of methods."""

    name: ClassVar[str] = "settings"
    weight: ClassVar[float] = 5

    def __init__(self, made: Workspace, scratch: Path) -> None:
        self._file = scratch / "method.yaml"
        self._paths = list(_paths(FineTuning().model_dump(mode="json")))
        self._method = Method.load("output-distillation").model_dump(mode="json", by_alias=True)

    def case(self, draw: random.Random) -> Case:
        if draw.random() < 0.5:
            text = as_yaml(changed(draw, self._method))
            self._file.write_text(text, encoding="utf-8", errors="surrogatepass")
            return Case(text, lambda: Method.load(str(self._file)))
        change = f"{draw.choice(self._paths)}={as_yaml(junk(draw))}"
        return Case(change, lambda: FineTuning.of(with_changes({}, [change])))


def _used(recipe: str | Path, changes: list[str]) -> None:
    """Load a recipe and count its parameters, as ``bertwright count``."""
    parameters_by_part(Recipe.load(recipe, *changes))


def _paths(data: Any, above: str = "") -> Iterator[str]:
    for name, value in data.items():
        yield f"{above}{name}"
        if isinstance(value, dict):
            yield from _paths(value, f"{above}{name}.")
