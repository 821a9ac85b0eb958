"""From files and changes to one resolved recipe.

Mappings merge key by key; a mapping whose ``kind`` changes is replaced whole; ``null`` removes;
lists are replaced. A system in a size is its file, then the size, then what the file states under
``sizes`` for that size alone; what it states ``about`` the system is no part of the recipe.
"""

import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources, util
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from bertwright.axes import Choice, did_you_mean, explain, quoted
from bertwright.errors import UserError
from bertwright.files import read_text, require_file
from bertwright.recipes.yaml_text import MAX_CHARACTERS, MAX_DEPTH, parse_yaml

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


def read(name: str | Path, children: tuple[Path, ...] = ()) -> Mapped:
    """Return a recipe as plain data, parents and size merged in; ``children`` are the files that
    extend it."""
    if isinstance(name, Path) or str(name).endswith((".yaml", ".yml")) or "/" in str(name):
        path = Path(name)
        return _with_parent({"name": path.stem, **read_yaml(path)}, path, children)
    system, _, size = name.rpartition("-")
    if name in systems():
        system, size = name, ""
    elif system not in systems() or size not in sizes_of(system):
        each = (f"{system}-*" for system in systems())
        near = did_you_mean(str(name), [*systems(), *recipe_names()], each)
        raise UserError(f"there is no recipe {name!r}{near}")
    stated = dict(_system(system))
    own = stated.pop("sizes", {})
    sized = revised(revised(stated, _sizes().get(size, {})), own.get(size, {}))
    return {**sized, "name": name}


def merged(parent: Mapping[str, Any], child: Mapping[str, Any]) -> Mapped:
    """The parent with what the child states; a choice that was stated by its name alone is kept
    where more is said of it."""
    result = dict(parent)
    for name, value in child.items():
        old = result.get(name)
        if isinstance(value, Mapping) and isinstance(old, str):
            old = {"kind": old}
        if value is None and name in result and isinstance(old, Mapping):
            del result[name]
        elif isinstance(value, Mapping) and isinstance(old, Mapping):
            changed = "kind" in value and value["kind"] != old.get("kind", value["kind"])
            result[name] = dict(value) if changed else merged(old, value)
        else:
            result[name] = value
    return result


def spelled(changes: Iterable[str]) -> Mapped:
    """Return changes of settings with all scalars as the texts that they were typed as."""
    stated: Mapped = {}
    for change in changes:
        stated = merged(stated, _parsed(change, as_text=True))
    return stated


def changed(stated: Mapped, changes: Iterable[Change]) -> Mapped:
    """Settings with changes: ``key.path=value``, whose values are YAML, or mappings."""
    for change in changes:
        stated = revised(stated, _parsed(change) if isinstance(change, str) else change)
    return stated


def revised(parent: Mapping[str, Any], child: Mapping[str, Any]) -> Mapped:
    """The parent with what the child states, whose length of the assembly is that of the parent's
    phases, too: who asks for rows of a length means all of them. A batch that went with a length
    goes with it."""
    assembly, phases = child.get("assembly"), parent.get("phases")
    if isinstance(assembly, Mapping) and "length" in assembly and isinstance(phases, list):
        parent = {**parent, "phases": [_without_length(phase) for phase in phases]}
    return merged(parent, child)


def _without_length(phase: Any) -> Any:
    if not isinstance(phase, Mapping) or "length" not in phase:
        return phase
    return {name: value for name, value in phase.items() if name not in ("length", "batch")}


_plugins: dict[Path, None] = {}


def import_plugin(path: Path) -> None:
    """Run a user's file, once, so that the choices it defines are known.

    Errors: UserError for a file that is not there or is no Python, for what it raises, and for a
    kind that is there already.
    """
    require_file(path)
    path = path.resolve()
    if path in _plugins:
        return
    spec = util.spec_from_file_location(f"bertwright_plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"--plugin {path}: name a Python file, which ends in .py")
    module = util.module_from_spec(spec)
    # A class that nobody holds is forgotten, and its kind with it.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        _check_kinds_are_new(module)
    except Exception as error:
        del sys.modules[spec.name]
        raise UserError(f"--plugin {path}{_line_of(error, path)}: {error}") from error
    _plugins[path] = None


def _line_of(error: Exception, path: Path) -> str:
    """Where in a file it was raised."""
    passed = traceback.extract_tb(error.__traceback__)
    found = [frame.lineno for frame in passed if frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else found[-1] if found else None
    return "" if line is None else f", line {line}"


def _check_kinds_are_new(module: ModuleType) -> None:
    values = (value for value in vars(module).values() if isinstance(value, type))
    for own in (v for v in values if issubclass(v, Choice) and v.__module__ == module.__name__):
        if other := own.namesake():
            raise UserError(f"{own.__name__} has the kind of {other.__name__}: choose another")


def imported_plugins() -> tuple[Path, ...]:
    """The files that were, in their order: what another process must import as well."""
    return tuple(_plugins)


def _parsed(override: str, as_text: bool = False) -> Mapped:
    path, equals, text = override.partition("=")
    parts = path.split(".")
    if not equals or not all(parts) or len(parts) > MAX_DEPTH:
        raise UserError(f"{quoted(override)} is not of the form key.path=value")
    try:
        value = parse_yaml(text, as_text)
    except ValueError as error:
        raise UserError(f"{quoted(override)}: the value is not YAML ({error})") from error
    for part in reversed(parts):
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
    return parse_yaml(text)


@cache
def _sizes() -> Mapped:
    text = (resources.files("bertwright.recipes") / "sizes.yaml").read_text(encoding="utf-8")
    return parse_yaml(text)


def read_yaml(path: Path) -> Mapped:
    """The mapping that a file states, in which 1e-3 is a number.

    Errors: UserError for a file that is not there, or holds something else.
    """
    if not path.exists():
        raise UserError(f"there is no file {path}")
    require_file(path)
    if path.stat().st_size > 4 * MAX_CHARACTERS:
        raise UserError(f"{path} is not YAML: it is larger than any recipe")
    try:
        stated = parse_yaml(read_text(path))
    except ValueError as error:
        raise UserError(f"{path} is not YAML: {error}") from error
    if not isinstance(stated, dict):
        raise UserError(f"{path} must hold a mapping of keys to values")
    return cast(Mapped, stated)


def _with_parent(stated: Mapped, path: Path, children: tuple[Path, ...] = ()) -> Mapped:
    own = {key: value for key, value in stated.items() if key not in ("extends", "about")}
    parent = stated.get("extends")
    if parent is None:
        return own
    if not isinstance(parent, str):
        raise UserError(f"{path}: extends must name a recipe or a file, not {quoted(parent)}")
    if path.resolve() in children:
        raise UserError(f"{path}: extends {parent}, which extends it in turn")
    beside, children = path.parent / parent, (*children, path.resolve())
    try:
        known = read(beside if beside.suffix and beside.is_file() else parent, children)
    except OSError as error:
        raise UserError(f"{path}: extends {quoted(parent)}: {error.strerror}") from error
    return revised(known, own)
