"""The documentation on every machine: of the standard library, and of what bertwright requires.

Nothing is imported, only read. Optional extras, and whatever else is installed, are left out: so
the same versions of the same packages give the same modules.
"""

import platform
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bertwright.errors import UserError

_LEFT_OUT = frozenset(
    {"test", "tests", "testing", "idle_test", "benchmarks", "_vendor", "_vendored", "_distutils"}
)
"""Folders of tests, and of copies of other packages."""


@dataclass(frozen=True)
class Module:
    """A file of Python source, and the name by which it would be imported."""

    name: str
    path: Path


@dataclass(frozen=True)
class Package:
    """A package as installed; ``description`` is what its page on a package index says."""

    name: str
    version: str
    modules: tuple[Module, ...]
    description: str = ""


def installed_documentation() -> list[Package]:
    """The standard library and every package that bertwright requires, in a fixed order."""
    return [standard_library(), *required_packages()]


def standard_library() -> Package:
    """Python's own modules, without those of its tests."""
    folder = Path(sysconfig.get_path("stdlib"))
    files = [
        path.relative_to(folder)
        for name in sys.stdlib_module_names
        for path in (folder / f"{name}.py", *(folder / name).rglob("*.py"))
    ]
    return Package("python", platform.python_version(), _modules(folder, files))


def required_packages(name: str = "bertwright") -> list[Package]:
    """Every package that one requires, directly or not, in alphabetical order.

    Errors: UserError when that one is not installed itself.
    """
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise UserError(
            f"{name} is not installed, so what it requires is not known: "
            "run pip install --editable . in its folder"
        ) from None
    distributions = _closure(canonicalize_name(name))
    return [_package(required, distributions[required]) for required in sorted(distributions)]


def _closure(root: str) -> dict[str, metadata.Distribution]:
    """What is required directly or not, without the one that requires it."""
    found: dict[str, metadata.Distribution] = {}
    pending = [(root, frozenset[str]())]
    seen = set(pending)
    while pending:
        name, extras = pending.pop()
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, found[name].requires or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": e}) for e in extras or {""}):
                wanted = (canonicalize_name(requirement.name), frozenset(requirement.extras))
                if wanted not in seen:
                    seen.add(wanted)
                    pending.append(wanted)
    del found[root]
    return found


def _package(name: str, distribution: metadata.Distribution) -> Package:
    inside = [Path(file) for file in distribution.files or () if ".." not in file.parts]
    modules = _modules(Path(str(distribution.locate_file(""))), inside)
    descriptions = distribution.metadata.get_all("Description") or [""]
    return Package(name, distribution.version, modules, descriptions[0])


def _modules(folder: Path, files: Iterable[Path]) -> tuple[Module, ...]:
    """The modules among the files of a folder, in the order of their paths."""
    return tuple(
        Module(_module_name(file), folder / file)
        for file in sorted(files)
        if file.suffix == ".py" and _LEFT_OUT.isdisjoint(file.parts) and (folder / file).is_file()
    )


def _module_name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
