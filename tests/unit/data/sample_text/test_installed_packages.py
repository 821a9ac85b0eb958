"""Source modules of Python and of required packages only."""

import sys
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.data.sample_text.installed_packages import required_packages, standard_library


def install(site: Path, name: str, requires: list[str], files: list[str]) -> None:
    """Write an installed package whose modules exit Python when imported."""
    for file in files:
        path = site / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import sys; sys.exit('imported')")
    info_folder = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info_folder.mkdir(parents=True)
    headers = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
    headers += [f"Requires-Dist: {requirement}" for requirement in requires]
    (info_folder / "METADATA").write_text("\n".join([*headers, "", f"What {name} is.", ""]))
    lines = [f"{file},," for file in ["../../bin/run.py", "gone.py", *files]]
    (info_folder / "RECORD").write_text("\n".join(lines))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a package with requirements, extras and environment markers."""
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
    files = ["bw_one/__init__.py", "bw_one/a.py", "bw_one/tests/b.py", "bw_one/data.txt"]
    install(tmp_path, "bw-one", ["bw-root"], files)
    install(tmp_path, "bw-two", ['bw-quick; extra == "fast"'], ["bw_two.py"])
    for name in ("bw-quick", "bw-extra", "bw-elsewhere", "bw-other"):
        install(tmp_path, name, [], [f"{name.replace('-', '_')}.py"])
    monkeypatch.syspath_prepend(str(tmp_path))
    return "bw-root"


def test_required_packages(root: str) -> None:
    packages = required_packages(root)
    assert [package.name for package in packages] == ["bw-one", "bw-quick", "bw-two"]
    assert [module.name for module in packages[0].modules] == ["bw_one", "bw_one.a"]
    assert packages[0].version == "1.0"
    assert packages[0].description.strip() == "What bw-one is."


def test_packages_are_not_imported(root: str) -> None:
    required_packages(root)
    assert not [name for name in sys.modules if name.startswith("bw_")]


def test_missing_package_raises() -> None:
    with pytest.raises(UserError, match="bw-nowhere is not installed"):
        required_packages("bw-nowhere")


def test_bertwright_requires_torch_and_no_extra() -> None:
    names = {package.name for package in required_packages()}
    assert {"torch", "numpy", "sympy"} <= names
    assert not {"bertwright", "transformers", "datasets", "pytest"} & names


def test_standard_library() -> None:
    python = standard_library()
    names = [module.name for module in python.modules]
    assert {"argparse", "json", "json.decoder", "pydoc_data.topics"} <= set(names)
    assert not [name for name in names if ".test" in name or "site-packages" in name]
    assert len(names) == len(set(names))
