"""Every required library is pinned, at a version that pyproject.toml allows."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from checkout import CHECKOUT


def test_constraints_pin_what_setup_installs() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    required = [*project["dependencies"], *(r for e in ("huggingface", "dev") for r in extras[e])]
    lines = (CHECKOUT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    versions = {canonicalize_name(name): version for name, version in pins.items()}
    for requirement in map(Requirement, required):
        name = canonicalize_name(requirement.name)
        if name != "bertwright":
            assert requirement.specifier.contains(versions[name]), requirement


def test_the_oldest_versions_are_those_that_are_claimed() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    claimed = {
        requirement.name: Version(specifier.version)
        for text in [*project["dependencies"], *(text for extra in extras for text in extra)]
        for requirement in [Requirement(text)]
        for specifier in requirement.specifier
        if specifier.operator == ">="
    }
    lines = (CHECKOUT / ".ci" / "oldest.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    names = ("onnxruntime", "sentence-transformers", "torch", "transformers")
    assert {name: Version(pin) for name, pin in pins.items()} == {n: claimed[n] for n in names}


def test_torch_is_pinned_by_its_plain_version() -> None:
    # A local version (2.13.0+cpu) would exclude every other build of the release.
    lines = (CHECKOUT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if re.match(r"torch==\d+\.\d+\.\d+$", line)]
