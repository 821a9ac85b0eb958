"""The sample text depends only on the packages."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.data.document import ReadCounts
from bertwright.data.readers.sources import find_sources
from bertwright.data.readers.tables import read_documents
from bertwright.data.sample_text.installed_packages import (
    InstalledPackage,
    SourceModule,
    standard_library,
)
from bertwright.data.sample_text.prose import is_prose
from bertwright.data.sample_text.sample import write_sample_text


def sentences(topic: str, number: int = 5) -> str:
    """Return paragraphs of one sentence each."""
    ordinals = ("first", "second", "third", "fourth", "fifth")
    return "\n\n".join(f"This is the {o} thing to know of {topic}." for o in ordinals[:number])


@pytest.fixture
def packages(tmp_path: Path) -> list[InstalledPackage]:
    """Return two packages, with a repeated module, a short one and one that is not UTF-8."""
    sources = {
        "first": f'raise SystemExit("imported")\n"""{sentences("apples")}"""',
        "second": f'"""{sentences("pears")}"""\n"""{sentences("apples")}"""',
        "copy": f'"""{sentences("apples")}"""',
        "short": f'"""{sentences("plums", 3)}"""',
        "broken": f'def (: """{sentences("figs")}"""',
        "latin": "caf\xe9",
        "pydoc_data.topics": f'x = {{"a": """{sentences("grapes")}""", '
        f'"b": """{sentences("dates")}"""}}',
    }
    modules: list[SourceModule] = []
    for name, source in sources.items():
        path = tmp_path / "site" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(source.encode("latin-1"))
        modules.append(SourceModule(name, path))
    return [
        InstalledPackage("fruit", "1.0", tuple(modules[:4]), sentences("fruit")),
        InstalledPackage("more", "2.1", tuple(modules[4:])),
    ]


def test_each_module_is_a_document(packages: list[InstalledPackage], tmp_path: Path) -> None:
    output = tmp_path / "sample"
    report = write_sample_text(output, 1, packages)
    text = (output / "sample.txt").read_bytes()
    documents = text.decode().removesuffix("\n").split("\n\n")
    topics = ["fruit", "apples", "pears", "figs", "grapes", "dates"]
    assert documents == [sentences(topic).replace("\n\n", "\n") for topic in topics]
    assert report.documents == 6
    assert report.paragraphs == report.sentences == 30
    assert report.words == len(text.split())
    assert report.bytes == len(text)
    assert report.repeated_paragraphs == 10
    assert report.short_documents == 1
    assert report.unreadable_modules == 1
    assert report.words_by_package == {"fruit": 3 * 45, "more": 3 * 45}


def test_manifest_lists_packages(packages: list[InstalledPackage], tmp_path: Path) -> None:
    output = tmp_path / "sample"
    write_sample_text(output, 1, packages)
    manifest = json.loads((output / "sample.json").read_text())
    assert manifest["packages"] == {"fruit": "1.0", "more": "2.1"}
    assert manifest["sha256"] == hashlib.sha256((output / "sample.txt").read_bytes()).hexdigest()


def test_content_does_not_depend_on_the_number_of_workers(
    packages: list[InstalledPackage], tmp_path: Path
) -> None:
    many = [replace(p, name=f"{p.name}{i}") for i in range(20) for p in packages]
    for workers in (1, 2, 3):
        write_sample_text(tmp_path / str(workers), workers, many)
    for file in ("sample.txt", "sample.json"):
        assert len({(tmp_path / str(w) / file).read_bytes() for w in (1, 2, 3)}) == 1


def test_sample_can_be_prepared(packages: list[InstalledPackage], tmp_path: Path) -> None:
    report = write_sample_text(tmp_path / "sample", 1, packages)
    sources = find_sources([tmp_path / "sample"])
    assert len(list(read_documents(sources, ReadCounts()))) == report.documents


def test_existing_folder_raises(packages: list[InstalledPackage], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="already exists"):
        write_sample_text(tmp_path, 1, packages)


def test_real_documentation(tmp_path: Path) -> None:
    python = standard_library()
    names = {"pydoc_data.topics", "json", "argparse", "tarfile", "turtle", "typing"}
    modules = tuple(module for module in python.modules if module.name in names)
    report = write_sample_text(tmp_path / "sample", 2, [replace(python, modules=modules)])
    paragraphs = (tmp_path / "sample" / "sample.txt").read_text().split("\n")
    assert report.words > 40_000
    assert report.unreadable_modules == 0
    assert all(is_prose(paragraph) for paragraph in paragraphs if paragraph)
    assert len(set(paragraphs)) == report.paragraphs + 1
