"""Loading of recipes: files, sizes and overrides merged into one resolved recipe.

Mappings are merged key by key, but if the ``kind`` of a mapping changes it is replaced as a whole.
Lists are replaced. ``null`` removes a key. A sized system merges its file, then the size, then the
file's own ``sizes`` entry. ``about`` is not part of the recipe.
"""

import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources, util
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from bertwright.core.config import did_you_mean, quote, to_user_error
from bertwright.core.errors import UserError
from bertwright.core.files import read_text, require_file
from bertwright.core.registry import Registry, transaction
from bertwright.recipes.yaml_values import MAX_CHARACTERS, MAX_DEPTH, parse_yaml

SettingsType = TypeVar("SettingsType", bound=BaseModel)
PlainMapping = dict[str, Any]
Override = str | Mapping[str, Any]


def recipe_names() -> list[str]:
    """Return the names of all systems in all sizes, such as ``bert-tiny``."""
    return [f"{system}-{size}" for system in system_names() for size in size_names(system)]


def size_names(system: str) -> list[str]:
    """Return the names of the common sizes, then of the system's own."""
    return list(dict.fromkeys([*read_system_file("sizes"), *_load_system(system).get("sizes", {})]))


def system_names() -> list[str]:
    """Return the sorted names of the systems that have a file."""
    folder = resources.files("bertwright.recipes")
    names = (Path(f.name) for f in folder.iterdir() if f.name.endswith(".yaml"))
    return sorted(n.stem for n in names if n.stem != "sizes")


def system_of(name: str) -> str:
    """Return the system that a recipe's name begins with: ``bert`` for ``bert-tiny``."""
    return name if name in system_names() else name.rpartition("-")[0] or name


def load_recipe_as(
    name: str | Path, overrides: Iterable[Override], settings_class: type[SettingsType]
) -> SettingsType:
    """Read a recipe by name or from a file, apply its size and the overrides, and validate it."""
    settings = apply_overrides(read_recipe(name), overrides)
    try:
        return settings_class.model_validate(settings)
    except ValidationError as error:
        raise to_user_error(error, f"recipe {name}") from error


def is_recipe_file(name: str | Path) -> bool:
    """Return whether a recipe is named by its file, and not by the name of a published one."""
    return isinstance(name, Path) or name.endswith((".yaml", ".yml")) or "/" in name


def read_recipe(name: str | Path, extended_by: tuple[Path, ...] = ()) -> PlainMapping:
    """Return a recipe as plain data, with parents and size merged in.

    ``extended_by`` are the files that extend it, to detect cycles.
    """
    if is_recipe_file(name):
        path = Path(name)
        return _merge_parent({"name": path.stem, **read_yaml(path)}, path, extended_by)
    system = system_of(str(name))
    size = str(name).removeprefix(system).removeprefix("-")
    if system not in system_names() or (size and size not in size_names(system)):
        examples = (f"{system}-*" for system in system_names())
        hint = did_you_mean(str(name), [*system_names(), *recipe_names()], examples)
        raise UserError(f"there is no recipe {name!r}{hint}")
    settings = dict(_load_system(system))
    sizes = settings.pop("sizes", {})
    common_size = _settings_in(settings, read_system_file("sizes").get(size, {}))
    result = merge_override(merge_override(settings, common_size), sizes.get(size, {}))
    return {**result, "name": name}


def _settings_in(settings: Mapping[str, Any], size: Mapping[str, Any]) -> PlainMapping:
    """Return the settings of a size that a system has; without blocks there are no layers."""
    return {
        name: _settings_in(settings[name], value) if isinstance(value, Mapping) else value
        for name, value in size.items()
        if name in settings
    }


def merge(parent: Mapping[str, Any], child: Mapping[str, Any]) -> PlainMapping:
    """Merge ``child`` into ``parent``; settings are also added to a bare kind such as ``adamw``."""
    result = dict(parent)
    for name, value in child.items():
        old = result.get(name)
        if isinstance(value, Mapping) and isinstance(old, str):
            old = {"kind": old}
        if value is None and name in result and isinstance(old, Mapping):
            del result[name]
        elif isinstance(value, Mapping) and isinstance(old, Mapping):
            changed = "kind" in value and value["kind"] != old.get("kind", value["kind"])
            result[name] = dict(value) if changed else merge(old, value)
        else:
            result[name] = value
    return result


def apply_overrides(
    settings: PlainMapping, overrides: Iterable[Override], as_text: bool = False
) -> PlainMapping:
    """Apply overrides: ``key.path=value`` with YAML values, or mappings.

    With ``as_text`` all values except null stay text.
    """
    for change in overrides:
        settings = merge_override(
            settings, _parse_override(change, as_text) if isinstance(change, str) else change
        )
    return settings


def merge_override(parent: Mapping[str, Any], child: Mapping[str, Any]) -> PlainMapping:
    """Merge ``child`` into ``parent``; a new ``assembly.length`` also applies to every phase.

    A phase with its own length loses that length and its batch factor.
    """
    assembly, phases = child.get("assembly"), parent.get("phases")
    if isinstance(assembly, Mapping) and "length" in assembly and isinstance(phases, list):
        parent = {**parent, "phases": [_without_length(phase) for phase in phases]}
    return merge(parent, child)


def _without_length(phase: Any) -> Any:
    if not isinstance(phase, Mapping) or "length" not in phase:
        return phase
    return {name: value for name, value in phase.items() if name not in ("length", "batch")}


_plugins = Registry[Path]()
"""Imported plugin files by absolute path."""


def import_plugin(path: Path) -> None:
    """Import a user's file once, so that the kinds it defines are known.

    Errors: UserError if the file does not exist, is not Python, raises an exception, or defines a
    kind that already exists.
    """
    require_file(path)
    path = path.resolve()
    if str(path) in _plugins:
        return
    spec = util.spec_from_file_location(f"bertwright_plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"--plugin {path}: name a Python file, which ends in .py")
    try:
        with transaction():
            _plugins.register(str(path), path, spec.name)
            sys.modules[spec.name] = module = util.module_from_spec(spec)
            spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"--plugin {path}{_line_of(error, path)}: {error}") from error


def _line_of(error: Exception, path: Path) -> str:
    """Return the line of a file that raised an error, as text; "" if unknown."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return "" if line is None else f", line {line}"


def imported_plugins() -> tuple[Path, ...]:
    """Return the imported plugin files in order; other processes must import them, too."""
    return tuple(_plugins.values())


def _parse_override(override: str, as_text: bool) -> PlainMapping:
    path, equals, text = override.partition("=")
    parts = path.split(".")
    if not equals or not all(parts) or len(parts) > MAX_DEPTH:
        raise UserError(f"{quote(override)} is not of the form key.path=value")
    try:
        value = parse_yaml(text, as_text)
    except ValueError as error:
        raise UserError(f"{quote(override)}: the value is not YAML ({error})") from error
    for part in reversed(parts):
        value = {part: value}
    return value


@cache
def _load_system(name: str) -> PlainMapping:
    return _merge_parent(read_system_file(name), Path(f"{name}.yaml"))


@cache
def read_system_file(system: str) -> PlainMapping:
    """Return the content of a system's file: ``source``, ``extends``, ``about`` and settings."""
    text = (resources.files("bertwright.recipes") / f"{system}.yaml").read_text(encoding="utf-8")
    return parse_yaml(text)


def read_yaml(path: Path) -> PlainMapping:
    """Return the mapping in a YAML file; 1e-3 is a number.

    Errors: UserError if the file does not exist or does not hold a mapping.
    """
    if not path.exists():
        raise UserError(f"there is no file {path}")
    require_file(path)
    if path.stat().st_size > 4 * MAX_CHARACTERS:
        raise UserError(f"{path} is not YAML: it is too large for a recipe")
    try:
        settings = parse_yaml(read_text(path))
    except ValueError as error:
        raise UserError(f"{path} is not YAML: {error}") from error
    if not isinstance(settings, dict):
        raise UserError(f"{path} must hold a mapping of keys to values")
    return cast(PlainMapping, settings)


def _merge_parent(
    settings: PlainMapping, path: Path, extended_by: tuple[Path, ...] = ()
) -> PlainMapping:
    child = {key: value for key, value in settings.items() if key not in ("extends", "about")}
    parent = settings.get("extends")
    if parent is None:
        return child
    if not isinstance(parent, str):
        raise UserError(f"{path}: extends must name a recipe or a file, not {quote(parent)}")
    if path.resolve() in extended_by:
        raise UserError(f"{path}: extends {parent}, which extends it in turn")
    parent_path, extended_by = path.parent / parent, (*extended_by, path.resolve())
    try:
        parent_settings = read_recipe(
            parent_path if parent_path.suffix and parent_path.is_file() else parent, extended_by
        )
    except OSError as error:
        raise UserError(f"{path}: extends {quote(parent)}: {error.strerror}") from error
    return merge_override(parent_settings, child)
