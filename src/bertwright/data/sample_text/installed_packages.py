"""Source modules of the standard library and of the packages that bertwright requires.

Modules are read, not imported. Optional extras and other packages are left out, so the modules
depend only on the versions of the required packages.
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

from bertwright.core.errors import UserError

_EXCLUDED_FOLDERS = frozenset(
    {"test", "tests", "testing", "idle_test", "benchmarks", "_vendor", "_vendored", "_distutils"}
)
"""Names of folders with tests and vendored packages, which are skipped."""


@dataclass(frozen=True)
class SourceModule:
    """A Python source file and its module name."""

    name: str
    path: Path


@dataclass(frozen=True)
class InstalledPackage:
    """An installed package; ``description`` is the text of its page on the package index."""

    name: str
    version: str
    modules: tuple[SourceModule, ...]
    description: str = ""


def documented_packages() -> list[InstalledPackage]:
    """Return the standard library and every package that bertwright requires, in fixed order."""
    return [standard_library(), *required_packages()]


def standard_library() -> InstalledPackage:
    """Return Python's modules without its tests."""
    folder = Path(sysconfig.get_path("stdlib"))
    files = [
        path.relative_to(folder)
        for name in sys.stdlib_module_names
        for path in (folder / f"{name}.py", *(folder / name).rglob("*.py"))
    ]
    return InstalledPackage("python", platform.python_version(), _modules(folder, files))


def required_packages(name: str = "bertwright") -> list[InstalledPackage]:
    """Return the direct and indirect requirements of a package, in alphabetical order.

    Errors: UserError if the package is not installed.
    """
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise UserError(
            f"{name} is not installed, so its requirements are unknown: "
            "run pip install --editable . in its folder"
        ) from None
    distributions = _transitive_requirements(canonicalize_name(name))
    return [_package(required, distributions[required]) for required in sorted(distributions)]


def _transitive_requirements(package: str) -> dict[str, metadata.Distribution]:
    """Return the direct and indirect requirements of a package by name."""
    distributions: dict[str, metadata.Distribution] = {}
    pending = [(package, frozenset[str]())]
    seen = set(pending)
    while pending:
        name, extras = pending.pop()
        try:
            distributions[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, distributions[name].requires or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": e}) for e in extras or {""}):
                required = (canonicalize_name(requirement.name), frozenset(requirement.extras))
                if required not in seen:
                    seen.add(required)
                    pending.append(required)
    del distributions[package]
    return distributions


def _package(name: str, distribution: metadata.Distribution) -> InstalledPackage:
    files = [Path(file) for file in distribution.files or () if ".." not in file.parts]
    modules = _modules(Path(str(distribution.locate_file(""))), files)
    descriptions = distribution.metadata.get_all("Description") or [""]
    return InstalledPackage(name, distribution.version, modules, descriptions[0])


def _modules(folder: Path, files: Iterable[Path]) -> tuple[SourceModule, ...]:
    """Return the modules among the files of a folder, sorted by path."""
    return tuple(
        SourceModule(_module_name(file), folder / file)
        for file in sorted(files)
        if file.suffix == ".py"
        and _EXCLUDED_FOLDERS.isdisjoint(file.parts)
        and (folder / file).is_file()
    )


def _module_name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
