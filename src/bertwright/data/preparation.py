"""Preparation of a data set from text files.

The main process reads documents, drops duplicates and assigns splits; workers tokenize chunks of
documents, as processes of this machine or as tasks of a Ray cluster; the main process writes the
chunks in order. All steps stream, so memory grows only by about 30 bytes per document, for
deduplication. The chunks depend on the text alone, so neither the number of workers nor the loss of
one changes a byte of the result.
"""

import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from bertwright.core.errors import UserError
from bertwright.core.files import atomic_folder, require_new_folder
from bertwright.core.hardware import num_cores
from bertwright.core.object_storage import storage_url
from bertwright.core.parallel import CHUNK_CHARACTERS, OrderedMap, map_in_order
from bertwright.core.ray_cluster import map_on_ray
from bertwright.data.annotations.alignment import PhraseList, annotation_token_spans, sidecar_path
from bertwright.data.annotations.tagger import Tagger
from bertwright.data.deduplication import drop_duplicates, drop_near_duplicates
from bertwright.data.document import PHRASE, Document, ReadCounts
from bertwright.data.holdout import HELDOUT, TRAIN, assign_splits
from bertwright.data.readers.dialogues import join_turns
from bertwright.data.readers.sources import TextSource, find_sources, require_languages
from bertwright.data.readers.tables import read_documents
from bertwright.data.shards.dataset import REPORT_FILE, Dataset
from bertwright.data.shards.manifest import DatasetFeatures
from bertwright.data.shards.remote import remote_output
from bertwright.data.shards.writer import DatasetWriter
from bertwright.data.tokenization.boundaries import WORD_START, token_boundaries
from bertwright.data.tokenization.token_cache import EncodedDocuments, TokenCache
from bertwright.data.tokenization.tokenizer import Tokenizer


def prepare(
    inputs: Sequence[str | Path] | str | Path,
    output: str | Path,
    tokenizer: Tokenizer | str | Path,
    *,
    heldout: float = 0.05,
    near_duplicates: bool = False,
    column: str = "text",
    split: str = "train",
    format: str | None = None,
    language_column: str | None = None,
    annotations_column: str | None = None,
    phrases: str | Path | None = None,
    tagger: str | None = None,
    dialogues: Sequence[str | Path] = (),
    dialogue_column: str = "dialogue",
    capitals: bool = False,
    num_workers: int | None = None,
    backend: Literal["ray"] | None = None,
) -> Dataset:
    """Prepare a data set from files, folders and patterns (``-`` is standard input).

    ``en=FILE`` is text in English. ``en,de=FILE,FILE`` are two files whose lines are translations
    of each other, and ``en,de=TABLE`` is a table with a column for each language. In other tables
    ``language_column`` states the language of each text. ``hf:owner/name`` or
    ``hf:owner/name:config`` is the ``split`` of a data set on the Hugging Face Hub, streamed.

    Phrases and entities come from three sources: ``annotations_column`` of tables (or the file
    ``story.txt.json`` next to plain text); ``phrases``, a file with one phrase per line (and the
    entity type after a tab); and ``tagger``, a spaCy pipeline. ``dialogues`` are additional inputs:
    tables with a list of turns in ``dialogue_column``, or plain text with one turn per line.
    ``capitals`` stores which words are capitalised, for a tokenizer that lower-cases.

    ``heldout`` is the held-out fraction of the text. ``near_duplicates`` also drops documents that
    are similar to an earlier one. ``column`` is the text column of tables. ``format`` overrides the
    format implied by file names. Inputs and ``output`` may be in object storage, such as
    ``s3://bucket/data``. The text is tokenized by ``num_workers`` processes, or with ``backend``
    "ray" by the nodes of a Ray cluster. The folder is written atomically.

    Errors: UserError if an input is missing, empty or not text, if translations do not match, if
    the disk is full, or if ``output`` is not empty.
    """
    started = time.monotonic()
    if storage_url(output) is None:
        require_new_folder(Path(output))
    if not 0.0 <= heldout < 1.0:
        raise UserError(f"the held-out fraction must be at least 0 and less than 1, not {heldout}")
    if not isinstance(tokenizer, Tokenizer):
        tokenizer = Tokenizer.load(tokenizer)
    inputs = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    parallel_map: OrderedMap = (
        map_on_ray
        if backend == "ray"
        else partial(map_in_order, num_workers=num_workers or num_cores())
    )
    counts = ReadCounts()
    sources = find_sources(inputs, column, format, counts, language_column, split=split)
    if annotations_column is not None:
        sources = [_with_annotations(source, annotations_column) for source in sources]
    if dialogues:
        dialogue_sources = find_sources(
            dialogues,
            dialogue_column,
            None,
            counts,
            language_column,
            remedy="rename the file",
            split=split,
        )
        sources += [_as_dialogues(source) for source in dialogue_sources]
        require_languages(sources)
    features = DatasetFeatures(
        languages=any(source.has_language for source in sources),
        annotations=(annotations_column, phrases, tagger) != (None, None, None),
        dialogues=bool(dialogues),
        capitals=capitals,
    )
    finders: list[PhraseList | Tagger] = []
    if phrases is not None:
        finders.append(PhraseList.read(Path(phrases)))
    if tagger is not None:
        finders.append(Tagger(tagger))
    documents = drop_duplicates(read_documents(sources, counts), counts)
    if near_duplicates:
        documents = drop_near_duplicates(documents, counts, parallel_map)
    chunks = _chunk_by_split(assign_splits(documents, heldout))
    split_names = (TRAIN, HELDOUT) if heldout > 0 else (TRAIN,)
    with (
        _new_data_folder(output) as (folder, open_shard),
        DatasetWriter(folder, tokenizer, split_names, features, open_shard=open_shard) as writer,
    ):
        arguments = (tokenizer, features, finders)
        for encoded_chunk in parallel_map(_DocumentEncoder, arguments, chunks):
            writer.append(*encoded_chunk)
        if not writer.num_tokens:
            raise UserError(f"no text found in {', '.join(map(str, inputs))}")
        report = writer.finish(counts.sources)
        report |= {name: value for name, value in asdict(counts).items() if name != "sources"}
        if dialogues and "turns" not in report:
            raise UserError(
                f"no dialogue found in {', '.join(map(str, dialogues))}: a dialogue has at least "
                f"two turns"
            )
        if heldout:
            achieved = report["splits"][HELDOUT]["tokens"] / report["tokens"]
            report |= {"heldout_requested": heldout, "heldout_achieved": achieved}
        seconds = time.monotonic() - started
        report |= {"seconds": seconds, "megabytes_per_second": report["bytes"] / 1e6 / seconds}
        (folder / REPORT_FILE).write_text(json.dumps(report, indent=1) + "\n")
    return Dataset.open(output, is_verified=True)


@contextmanager
def _new_data_folder(
    output: str | Path,
) -> Generator[tuple[Path, Callable[[str], BinaryIO] | None]]:
    """Yield a local folder for the files of a data set, and a function that opens its shards.

    The function is None if the shards belong into the folder, too.
    """
    url = storage_url(output)
    if url is None:
        with atomic_folder(Path(output)) as folder:
            yield folder, None
    else:
        with remote_output(url) as remote:
            yield remote.folder, remote.open_shard


def _with_annotations(source: TextSource, column: str) -> TextSource:
    if source.translation_path is not None or len(source.languages) == 2:
        raise UserError(
            f"{source.name} holds translations, which cannot have annotations: list the phrases "
            f"in a file with --phrases"
        )
    if source.format == "txt" and not sidecar_path(source.name).exists():
        raise UserError(
            f"{source.name} is plain text without annotations: write them to "
            f"{sidecar_path(source.name)}, use JSON lines, or list phrases with --phrases"
        )
    return replace(source, annotations_column=column)


def _as_dialogues(source: TextSource) -> TextSource:
    if len(source.languages) == 2:
        raise UserError(f"{source.name}: a dialogue is in one language: write en={source.name}")
    return replace(source, is_dialogue=True)


class _DocumentEncoder:
    """A function that tokenizes and annotates a chunk of documents in a worker process."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        features: DatasetFeatures,
        finders: Sequence[PhraseList | Tagger],
    ) -> None:
        self._tokenizer = tokenizer
        self._cache = TokenCache(tokenizer)
        self._features = features
        self._finders = finders

    def __call__(
        self, chunk: tuple[str, list[Document]]
    ) -> tuple[str, EncodedDocuments, dict[str, NDArray[Any]], list[str]]:
        """Return the split, tokens, optional arrays, and language of each document with tokens."""
        split, documents = chunk
        sides = [side for document in documents for side in document.sides]
        encoded = self._cache.encode([part for side in sides for part in side.parts])
        arrays: dict[str, NDArray[Any]] = {}
        languages: list[str] = []
        if self._features.dialogues:
            encoded, turns = join_turns(encoded, sides)
            arrays |= {"turn_starts": turns[:, 0], "turn_speakers": turns[:, 1]}
        if self._features.languages:
            has_tokens = encoded.document_lengths > 0
            is_translation = np.array([n > 0 for d in documents for n in range(len(d.sides))])
            is_translation[1:] &= has_tokens[:-1]
            arrays["translations"] = np.flatnonzero(is_translation[has_tokens])
            languages = [str(sides[n].language) for n in np.flatnonzero(has_tokens)]
        if self._features.annotations:
            arrays |= self._annotation_spans(sides, encoded)
        if self._features.capitals:
            arrays["capitals"] = self._capital_positions(sides)
        return split, encoded, arrays, languages

    def _capital_positions(self, sides: Sequence[Document]) -> NDArray[np.int64]:
        """Return the positions of tokens where a capitalised word starts."""
        positions: list[int] = []
        first = 0
        for part in (part for side in sides for part in side.parts):
            _, offsets = self._tokenizer.encode_with_offsets(part)
            boundaries, _ = token_boundaries(part, offsets)
            positions += [
                first + token
                for token, (flags, (start, stop)) in enumerate(
                    zip(boundaries, offsets, strict=True)
                )
                if flags & WORD_START and part[start:stop][:1].isupper()
            ]
            first += len(offsets)
        return np.array(positions, np.int64)

    def _annotation_spans(
        self, sides: Sequence[Document], encoded: EncodedDocuments
    ) -> dict[str, NDArray[np.int64]]:
        """Return the first and last (exclusive) token positions of phrases and entities."""
        spans: dict[str, list[tuple[int, int]]] = {"phrase": [], "entity": []}
        begins = np.cumsum(encoded.document_lengths) - encoded.document_lengths
        for side, begin in zip(sides, begins.tolist(), strict=True):
            matches = [match for finder in self._finders for match in finder.find(side.text)]
            annotations = (*side.annotations, *matches)
            for annotation, start, stop in annotation_token_spans(
                self._tokenizer, side, annotations
            ):
                kind = "phrase" if annotation.label == PHRASE else "entity"
                spans[kind].append((begin + start, begin + stop))
        return {
            f"{kind}_{end}": np.array([span[n] for span in kind_spans], np.int64)
            for kind, kind_spans in spans.items()
            for n, end in enumerate(("starts", "stops"))
        }


def _chunk_by_split(
    documents: Iterable[tuple[str, Document]],
) -> Iterator[tuple[str, list[Document]]]:
    """Yield chunks of consecutive documents of the same split."""
    pending: dict[str, list[Document]] = {TRAIN: [], HELDOUT: []}
    sizes = dict.fromkeys(pending, 0)
    for split, document in documents:
        pending[split].append(document)
        sizes[split] += len(document)
        if sizes[split] >= CHUNK_CHARACTERS:
            yield split, pending[split]
            pending[split], sizes[split] = [], 0
    yield from ((split, rest) for split, rest in pending.items() if rest)


@contextmanager
def temporary_dataset(
    texts: Sequence[str], tokenizer: Tokenizer, language: str = "en"
) -> Generator[Dataset]:
    """Yield a temporary data set with one document per text and no held-out split.

    Errors: UserError if the texts are empty.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / "texts.jsonl"
        rows = ({"text": text, "language": language, "annotations": []} for text in texts)
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        yield prepare(
            file,
            Path(folder) / "data",
            tokenizer,
            heldout=0.0,
            language_column="language",
            annotations_column="annotations",
            num_workers=1,
        )
