"""From files and changes to one resolved recipe.

Mappings merge key by key; a mapping whose ``kind`` changes is replaced whole; ``null`` removes;
lists are replaced. A system in a size is its file, then the size, then what the file states under
``sizes`` for that size alone; what it states ``about`` the system is no part of the recipe.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources, util
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from bertwright.axes import did_you_mean, explain
from bertwright.errors import UserError

Model = TypeVar("Model", bound=BaseModel)
Mapped = dict[str, Any]
Change = str | Mapping[str, Any]


def recipe_names() -> list[str]:
    """Every system in every size that it comes in."""
    return [f"{system}-{size}" for system in systems() for size in sizes_of(system)]


def sizes_of(system: str) -> list[str]:
    """The sizes that everything comes in, then those of this system alone."""
    return list(dict.fromkeys([*_sizes(), *_system(system).get("sizes", {})]))


def systems() -> list[str]:
    """The systems that have a file."""
    folder = resources.files("bertwright.recipes")
    names = (Path(f.name) for f in folder.iterdir() if f.name.endswith(".yaml"))
    return sorted(n.stem for n in names if n.stem != "sizes")


def resolve(name: str | Path, changes: Iterable[Change], model: type[Model]) -> Model:
    """Read a recipe by name or file, apply its size and the changes, and check it."""
    stated = changed(read(name), changes)
    try:
        return model.model_validate(stated)
    except ValidationError as error:
        raise explain(error, f"recipe {name}") from error


def read(name: str | Path) -> Mapped:
    """A recipe as plain data, parents and size merged in."""
    if isinstance(name, Path) or str(name).endswith((".yaml", ".yml")) or "/" in str(name):
        path = Path(name)
        return _with_parent({"name": path.stem, **read_yaml(path)}, path)
    system, _, size = name.rpartition("-")
    if name in systems():
        system, size = name, ""
    elif system not in systems() or size not in sizes_of(system):
        each = (f"{system}-*" for system in systems())
        near = did_you_mean(str(name), [*systems(), *recipe_names()], each)
        raise UserError(f"there is no recipe {name!r}{near}")
    stated = dict(_system(system))
    own = stated.pop("sizes", {})
    sized = merged(merged(stated, _sizes().get(size, {})), own.get(size, {}))
    return {**sized, "name": name}


def merged(parent: Mapping[str, Any], child: Mapping[str, Any]) -> Mapped:
    """The parent with what the child states."""
    result = dict(parent)
    for name, value in child.items():
        old = result.get(name)
        if value is None and name in result and isinstance(old, Mapping):
            del result[name]
        elif isinstance(value, Mapping) and isinstance(old, Mapping):
            changed = "kind" in value and value["kind"] != old.get("kind", value["kind"])
            result[name] = dict(value) if changed else merged(old, value)
        else:
            result[name] = value
    return result


def changed(stated: Mapped, changes: Iterable[Change]) -> Mapped:
    """Settings with changes: ``key.path=value``, whose values are YAML, or mappings."""
    for change in changes:
        stated = merged(stated, _parsed(change) if isinstance(change, str) else change)
    return stated


_plugins: dict[Path, None] = {}


def import_plugin(path: Path) -> None:
    """Run a user's file, once, so that the choices it defines are known."""
    if not path.is_file():
        raise UserError(f"--plugin {path}: there is no such file")
    path = path.resolve()
    if path in _plugins:
        return
    spec = util.spec_from_file_location(f"bertwright_plugin_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    # A class that nobody holds is forgotten, and its kind with it.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    _plugins[path] = None


def imported_plugins() -> tuple[Path, ...]:
    """The files that were, in their order: what another process must import as well."""
    return tuple(_plugins)


def _parsed(override: str) -> Mapped:
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise UserError(f"{override!r} is not of the form key.path=value")
    try:
        value = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise UserError(f"{override!r}: the value is not YAML ({_first_line(error)})") from error
    for part in reversed(path.split(".")):
        value = {part: value}
    return value


def stated_about(system: str) -> Mapped:
    """What the file of a system states under ``about``."""
    return _file_of(system).get("about", {})


def source_of(system: str) -> str:
    """Where a system was published, as its file states it."""
    return _file_of(system).get("source", "")


def parent_of(system: str) -> str | None:
    """The system that another one extends."""
    return _file_of(system).get("extends")


@cache
def _system(name: str) -> Mapped:
    return _with_parent(_file_of(name), Path(f"{name}.yaml"))


@cache
def _file_of(system: str) -> Mapped:
    text = (resources.files("bertwright.recipes") / f"{system}.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=_Loader)


@cache
def _sizes() -> Mapped:
    text = (resources.files("bertwright.recipes") / "sizes.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=_Loader)


def read_yaml(path: Path) -> Mapped:
    """The mapping that a file states, in which 1e-3 is a number.

    Errors: UserError for a file that is not there, or holds something else.
    """
    try:
        stated = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {_first_line(error)}") from error
    if not isinstance(stated, dict):
        raise UserError(f"{path} must hold a mapping of keys to values")
    return stated


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def _with_parent(stated: Mapped, path: Path) -> Mapped:
    own = {key: value for key, value in stated.items() if key not in ("extends", "about")}
    parent = stated.get("extends")
    if parent is None:
        return own
    beside = path.parent / str(parent)
    return merged(read(beside if beside.suffix and beside.is_file() else parent), own)


class _Loader(yaml.SafeLoader):
    """YAML in which 1e-3 is a number, as everyone who writes it means."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)$|^[-+]?\.[0-9_]+$"
        r"|^[-+]?[0-9][0-9_]*\.[0-9_]*$"
    ),
    list("-+0123456789."),
)
