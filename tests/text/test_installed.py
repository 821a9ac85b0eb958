"""The documentation is that of Python and of what is required, whatever else is installed."""

import sys
from pathlib import Path

import pytest

from bertwright.errors import UserError
from bertwright.text.installed import required_packages, standard_library


def install(site: Path, name: str, requires: list[str], files: list[str]) -> None:
    """Lay a package out as an installer would; its modules end Python when they are imported."""
    for file in files:
        path = site / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import sys; sys.exit('imported')")
    about = site / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir(parents=True)
    headers = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
    headers += [f"Requires-Dist: {requirement}" for requirement in requires]
    (about / "METADATA").write_text("\n".join([*headers, "", f"What {name} is.", ""]))
    lines = [f"{file},," for file in ["../../bin/run.py", "gone.py", *files]]
    (about / "RECORD").write_text("\n".join(lines))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that requires others, with extras and on other machines."""
    install(
        tmp_path,
        "bw-root",
        [
            "bw-one>=0.5",
            "bw_Two[fast]",
            'bw-extra; extra == "all"',
            'bw-elsewhere; python_version < "3"',
            "bw-not-there",
        ],
        ["bw_root/__init__.py"],
    )
    one = ["bw_one/__init__.py", "bw_one/a.py", "bw_one/tests/b.py", "bw_one/data.txt"]
    install(tmp_path, "bw-one", ["bw-root"], one)
    install(tmp_path, "bw-two", ['bw-quick; extra == "fast"'], ["bw_two.py"])
    for name in ("bw-quick", "bw-extra", "bw-elsewhere", "bw-other"):
        install(tmp_path, name, [], [f"{name.replace('-', '_')}.py"])
    monkeypatch.syspath_prepend(str(tmp_path))
    return "bw-root"


def test_what_is_required_and_nothing_else(root: str) -> None:
    packages = required_packages(root)
    assert [package.name for package in packages] == ["bw-one", "bw-quick", "bw-two"]
    assert [module.name for module in packages[0].modules] == ["bw_one", "bw_one.a"]
    assert packages[0].version == "1.0"
    assert packages[0].description.strip() == "What bw-one is."


def test_nothing_is_imported(root: str) -> None:
    required_packages(root)
    assert not [name for name in sys.modules if name.startswith("bw_")]


def test_a_package_that_is_not_installed() -> None:
    with pytest.raises(UserError, match="bw-nowhere is not installed"):
        required_packages("bw-nowhere")


def test_bertwright_requires_torch_and_no_extra() -> None:
    names = {package.name for package in required_packages()}
    assert {"torch", "numpy", "sympy"} <= names
    assert not {"bertwright", "transformers", "datasets", "pytest"} & names


def test_the_standard_library() -> None:
    python = standard_library()
    names = [module.name for module in python.modules]
    assert {"argparse", "json", "json.decoder", "pydoc_data.topics"} <= set(names)
    assert not [name for name in names if ".test" in name or "site-packages" in name]
    assert len(names) == len(set(names))
