"""The embedded sample text: real English prose that is there wherever bertwright is installed.

It is the documentation of Python and of the packages that bertwright requires: a document a module
(a topic of ``help()``, the description of a package), a line a paragraph, a blank line between
documents. No line is a title: the text is prose throughout. Narrow, repetitive English, good for a
first run without a download; it differs from installation to installation, so no figure that is to
be compared should rest on it.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path

from bertwright.files import atomic_folder
from bertwright.machine.cores import num_cores
from bertwright.text.installed import Module, Package, installed_documentation
from bertwright.text.literals import long_strings
from bertwright.text.processes import in_order
from bertwright.text.prose import prose_paragraphs
from bertwright.text.sentences import sentence_ends

FEWEST_SENTENCES = 4
"""A document with fewer is left out."""

_HELP_TOPICS = "pydoc_data.topics"
_SOURCES_AT_A_TIME = 16

Document = list[str]
"""Its paragraphs."""


@dataclass
class SampleReport:
    """What was gathered, from what, and the checksum by which to know it again."""

    documents: int = 0
    paragraphs: int = 0
    sentences: int = 0
    words: int = 0
    bytes: int = 0
    repeated_paragraphs: int = 0
    short_documents: int = 0
    unreadable_modules: int = 0
    sha256: str = ""
    packages: dict[str, str] = field(default_factory=dict[str, str])
    words_by_package: dict[str, int] = field(default_factory=dict[str, int])


def gather_sample(
    out: Path, num_workers: int | None = None, packages: Sequence[Package] | None = None
) -> SampleReport:
    """Write ``sample.txt`` and its manifest ``sample.json`` into a new folder.

    The bytes depend on the versions of the packages alone, not on ``num_workers`` (all processors
    where None). ``packages`` defaults to all that bertwright requires.

    Errors: UserError when the folder already holds something.
    """
    with atomic_folder(out) as folder:
        packages = installed_documentation() if packages is None else packages
        workers = num_cores() if num_workers is None else num_workers
        report = SampleReport(packages={package.name: package.version for package in packages})
        digest = hashlib.sha256()
        with open(folder / "sample.txt", "wb") as file:
            for document in _documents(packages, workers, report):
                text = "".join(f"{paragraph}\n" for paragraph in document).encode()
                blank_line = b"\n" if report.bytes else b""
                digest.update(blank_line + text)
                report.bytes += file.write(blank_line + text)
        report.sha256 = digest.hexdigest()
        manifest = json.dumps(asdict(report), indent=1)
        (folder / "sample.json").write_text(manifest + "\n", encoding="utf-8")
    return report


def _documents(
    packages: Sequence[Package], num_workers: int, report: SampleReport
) -> Iterator[Document]:
    """All documents in the order of the packages; a paragraph seen before is dropped."""
    sources = [(p.name, source) for p in packages for source in (p.description, *p.modules)]
    chunks = [
        [source for _, source in sources[start : start + _SOURCES_AT_A_TIME]]
        for start in range(0, len(sources), _SOURCES_AT_A_TIME)
    ]
    read = chain.from_iterable(in_order(_reader, (), chunks, num_workers))
    seen: set[str] = set()
    for (package, _), documents in zip(sources, read, strict=True):
        report.unreadable_modules += documents is None
        for document in documents or ():
            new = [paragraph for paragraph in dict.fromkeys(document) if paragraph not in seen]
            seen.update(new)
            report.repeated_paragraphs += len(document) - len(new)
            if _count(package, new, report):
                yield new


def _count(package: str, document: Document, report: SampleReport) -> bool:
    """Count a document, or only that it was too short."""
    num_sentences = sum(1 + sum(1 for _ in sentence_ends(paragraph)) for paragraph in document)
    if num_sentences < FEWEST_SENTENCES:
        report.short_documents += num_sentences > 0
        return False
    num_words = sum(len(paragraph.split()) for paragraph in document)
    report.documents += 1
    report.paragraphs += len(document)
    report.sentences += num_sentences
    report.words += num_words
    report.words_by_package[package] = report.words_by_package.get(package, 0) + num_words
    return True


def _reader() -> Callable[[list[Module | str]], list[list[Document] | None]]:
    return lambda sources: [_read(source) for source in sources]


def _read(source: Module | str) -> list[Document] | None:
    """The documents of a module or of a description; None where it is not UTF-8."""
    if isinstance(source, str):
        return [prose_paragraphs(source)]
    try:
        code = source.path.read_text(encoding="utf-8")
    except ValueError:
        return None
    documents = [prose_paragraphs(text) for text in long_strings(code)]
    return documents if source.name == _HELP_TOPICS else [list(chain.from_iterable(documents))]
