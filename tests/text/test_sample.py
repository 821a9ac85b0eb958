"""The sample text is the same bytes for the same packages."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bertwright.errors import UserError
from bertwright.text.documents import ReadCounts
from bertwright.text.installed import Module, Package, standard_library
from bertwright.text.prose import is_prose
from bertwright.text.readers import read_documents
from bertwright.text.sample import gather_sample
from bertwright.text.sources import find_sources


def sentences(about: str, number: int = 5) -> str:
    """So many paragraphs of one sentence."""
    ordinals = ("first", "second", "third", "fourth", "fifth")
    return "\n\n".join(f"This is the {o} thing to know of {about}." for o in ordinals[:number])


@pytest.fixture
def packages(tmp_path: Path) -> list[Package]:
    """Two packages: modules of their own, one module twice, a short one, one that is not UTF-8."""
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
    modules: list[Module] = []
    for name, source in sources.items():
        path = tmp_path / "site" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(source.encode("latin-1"))
        modules.append(Module(name, path))
    return [
        Package("fruit", "1.0", tuple(modules[:4]), sentences("fruit")),
        Package("more", "2.1", tuple(modules[4:])),
    ]


def test_documents_are_modules(packages: list[Package], tmp_path: Path) -> None:
    out = tmp_path / "sample"
    report = gather_sample(out, 1, packages)
    text = (out / "sample.txt").read_bytes()
    documents = text.decode().removesuffix("\n").split("\n\n")
    of = ["fruit", "apples", "pears", "figs", "grapes", "dates"]
    assert documents == [sentences(about).replace("\n\n", "\n") for about in of]
    assert report.documents == 6
    assert report.paragraphs == report.sentences == 30
    assert report.words == len(text.split())
    assert report.bytes == len(text)
    assert report.repeated_paragraphs == 10
    assert report.short_documents == 1
    assert report.unreadable_modules == 1
    assert report.words_by_package == {"fruit": 3 * 45, "more": 3 * 45}


def test_the_manifest_says_from_what(packages: list[Package], tmp_path: Path) -> None:
    out = tmp_path / "sample"
    gather_sample(out, 1, packages)
    manifest = json.loads((out / "sample.json").read_text())
    assert manifest["packages"] == {"fruit": "1.0", "more": "2.1"}
    assert manifest["sha256"] == hashlib.sha256((out / "sample.txt").read_bytes()).hexdigest()


def test_the_bytes_do_not_depend_on_the_number_of_processes(
    packages: list[Package], tmp_path: Path
) -> None:
    many = [replace(p, name=f"{p.name}{i}") for i in range(20) for p in packages]
    for workers in (1, 2, 3):
        gather_sample(tmp_path / str(workers), workers, many)
    for file in ("sample.txt", "sample.json"):
        assert len({(tmp_path / str(w) / file).read_bytes() for w in (1, 2, 3)}) == 1


def test_preparation_reads_the_documents_back(packages: list[Package], tmp_path: Path) -> None:
    report = gather_sample(tmp_path / "sample", 1, packages)
    sources = find_sources([tmp_path / "sample"])
    assert len(list(read_documents(sources, ReadCounts()))) == report.documents


def test_a_folder_in_use_is_left_alone(packages: list[Package], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="already exists"):
        gather_sample(tmp_path, 1, packages)


def test_real_documentation(tmp_path: Path) -> None:
    python = standard_library()
    chosen = {"pydoc_data.topics", "json", "argparse", "tarfile", "turtle", "typing"}
    modules = tuple(module for module in python.modules if module.name in chosen)
    report = gather_sample(tmp_path / "sample", 2, [replace(python, modules=modules)])
    paragraphs = (tmp_path / "sample" / "sample.txt").read_text().split("\n")
    assert report.words > 40_000
    assert report.unreadable_modules == 0
    assert all(is_prose(paragraph) for paragraph in paragraphs if paragraph)
    assert len(set(paragraphs)) == report.paragraphs + 1
