"""A sample text: English prose from the documentation of installed packages.

Sources are Python and the packages that bertwright requires. A document is a module, a topic of
``help()`` or the description of a package, with one paragraph per line and a blank line between
documents. The text is narrow and repetitive, but good enough for a first run without a download. It
differs between installations, so results on it are not comparable.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path

from bertwright.core.files import atomic_folder
from bertwright.core.hardware import num_cores
from bertwright.core.parallel import map_in_order
from bertwright.data.sample_text.installed_packages import (
    InstalledPackage,
    SourceModule,
    documented_packages,
)
from bertwright.data.sample_text.prose import prose_paragraphs
from bertwright.data.sample_text.string_literals import long_strings
from bertwright.data.tokenization.sentences import sentence_ends

MIN_SENTENCES = 4
"""Minimum number of sentences of a document; shorter ones are dropped."""

_HELP_TOPICS = "pydoc_data.topics"
_SOURCES_PER_CHUNK = 16

Paragraphs = list[str]


@dataclass
class SampleReport:
    """A summary of a sample text: counts, sources and checksum."""

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


def write_sample_text(
    output: Path, num_workers: int | None = None, packages: Sequence[InstalledPackage] | None = None
) -> SampleReport:
    """Write ``sample.txt`` and its manifest ``sample.json`` into a new folder.

    ``packages`` are by default all that bertwright requires, and the content depends only on their
    versions. ``num_workers`` is by default the number of cores.

    Errors: UserError if the folder is not empty.
    """
    with atomic_folder(output) as folder:
        packages = documented_packages() if packages is None else packages
        workers = num_cores() if num_workers is None else num_workers
        report = SampleReport(packages={package.name: package.version for package in packages})
        digest = hashlib.sha256()
        with open(folder / "sample.txt", "wb") as file:
            for document in _read_documents(packages, workers, report):
                text = "".join(f"{paragraph}\n" for paragraph in document).encode()
                blank_line = b"\n" if report.bytes else b""
                digest.update(blank_line + text)
                report.bytes += file.write(blank_line + text)
        report.sha256 = digest.hexdigest()
        manifest = json.dumps(asdict(report), indent=1)
        (folder / "sample.json").write_text(manifest + "\n", encoding="utf-8")
    return report


def _read_documents(
    packages: Sequence[InstalledPackage], num_workers: int, report: SampleReport
) -> Iterator[Paragraphs]:
    """Yield all documents in the order of the packages, without repeated paragraphs."""
    sources = [(p.name, source) for p in packages for source in (p.description, *p.modules)]
    chunks = [
        [source for _, source in sources[start : start + _SOURCES_PER_CHUNK]]
        for start in range(0, len(sources), _SOURCES_PER_CHUNK)
    ]
    results = chain.from_iterable(map_in_order(_make_reader, (), chunks, num_workers))
    seen: set[str] = set()
    for (package, _), documents in zip(sources, results, strict=True):
        report.unreadable_modules += documents is None
        for document in documents or ():
            new = [paragraph for paragraph in dict.fromkeys(document) if paragraph not in seen]
            seen.update(new)
            report.repeated_paragraphs += len(document) - len(new)
            if _count_document(package, new, report):
                yield new


def _count_document(package: str, document: Paragraphs, report: SampleReport) -> bool:
    """Count a document; return False if it is too short."""
    num_sentences = sum(1 + sum(1 for _ in sentence_ends(paragraph)) for paragraph in document)
    if num_sentences < MIN_SENTENCES:
        report.short_documents += num_sentences > 0
        return False
    num_words = sum(len(paragraph.split()) for paragraph in document)
    report.documents += 1
    report.paragraphs += len(document)
    report.sentences += num_sentences
    report.words += num_words
    report.words_by_package[package] = report.words_by_package.get(package, 0) + num_words
    return True


def _make_reader() -> Callable[[list[SourceModule | str]], list[list[Paragraphs] | None]]:
    return lambda sources: [_read_source(source) for source in sources]


def _read_source(source: SourceModule | str) -> list[Paragraphs] | None:
    """Return the documents of a module or description; None if the module is not UTF-8."""
    if isinstance(source, str):
        return [prose_paragraphs(source)]
    try:
        code = source.path.read_text(encoding="utf-8")
    except ValueError:
        return None
    documents = [prose_paragraphs(text) for text in long_strings(code)]
    return documents if source.name == _HELP_TOPICS else [list(chain.from_iterable(documents))]
