"""Write a search index in segments, so that a killed run can be continued and texts be added.

Each segment is a folder that is renamed when it is complete, and then listed in ``progress.json``.
When all texts are indexed, ``index.json`` is replaced; until then, an index that is extended
answers from the segments that it had before.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from bertwright.core.errors import UserError
from bertwright.core.files import (
    atomic_file,
    atomic_folder,
    explain_full_disk,
    output_lock,
    remove_unfinished,
    require_creatable,
    require_new_folder,
)
from bertwright.core.messages import count_noun
from bertwright.data.readers.identified_texts import IdentifiedText
from bertwright.models.retrieval_encoder import DenseEncoder, RetrievalEncoder, TextVectors
from bertwright.retrieval.bm25 import Bm25Index, stop_word_list
from bertwright.retrieval.manifest import (
    MANIFEST_FILE,
    PROBE_FILE,
    PROGRESS_FILE,
    SEGMENTS_FOLDER,
    BuildProgress,
    IndexManifest,
    SegmentInfo,
    check_files,
    damaged_index_error,
    describe_files,
    read_manifest,
    read_settings,
    write_settings,
)
from bertwright.retrieval.settings import IndexSettings
from bertwright.retrieval.text_segment import TextSegment
from bertwright.retrieval.vectors import VECTOR_SEGMENTS
from bertwright.retrieval.vectors.segment import flatten_vectors

ENCODED_TEXTS = 1024
"""Number of texts that are encoded at once."""

MIN_PROBE_COSINE = 0.95
"""Lowest cosine between vectors of the same model; precisions differ by less."""

MIN_STUDENT_COSINE = 0.5
"""Lowest cosine between a vector of a model and of a student of its vectors."""


@dataclass(frozen=True)
class IndexWriter:
    """A writer of the index in a folder.

    Attributes:
        encoder: the encoder of texts; None for BM25 alone.
        model: the path of its model, if known.
        log: receives a message for each segment.
    """

    folder: Path
    settings: IndexSettings
    encoder: RetrievalEncoder | None
    model: str | None = None
    log: Callable[[str], None] = lambda _: None

    def create(
        self, texts: Iterable[IdentifiedText], provenance: Mapping[str, str], resume: bool
    ) -> IndexManifest:
        """Write a new index, or with ``resume`` continue one from the same texts.

        Errors: UserError if the folder is in use, if the other run had another provenance, and if
        there are no texts; what a new run has written is then removed.
        """
        if (self.folder / MANIFEST_FILE).is_file():
            remedy = "there is nothing to resume" if resume else "use --add, or another folder"
            raise UserError(f"{self.folder} is a complete index: {remedy}")
        self._require_usable_settings()
        if not (self.folder / PROGRESS_FILE).is_file():
            require_new_folder(self.folder)
        require_creatable(self.folder)
        return self._write(None, texts, provenance, resume)

    def append(
        self, texts: Iterable[IdentifiedText], provenance: Mapping[str, str], resume: bool
    ) -> IndexManifest:
        """Add texts to the index as new segments; errors as for :meth:`create`."""
        before = read_manifest(self.folder)
        check_files(self.folder, before.files, is_content_checked=True)
        self._require_usable_settings()
        return self._write(before, texts, provenance, resume)

    def _require_usable_settings(self) -> None:
        """Raise UserError for settings that do not fit the encoder, before texts are read."""
        encoder, dimensions = self.encoder, self.settings.dimensions
        self.settings.require_representation(None if encoder is None else encoder.representation)
        stop_word_list(self.settings.stop_words)
        if encoder is None or dimensions is None:
            return
        if encoder.representation == "sparse":
            raise UserError("sparse vectors have no first dimensions: leave --dimensions out")
        if dimensions > encoder.width:
            raise UserError(
                f"--dimensions {dimensions} is more than the {encoder.width} of the model's vectors"
            )

    def _write(
        self,
        before: IndexManifest | None,
        texts: Iterable[IdentifiedText],
        provenance: Mapping[str, str],
        resume: bool,
    ) -> IndexManifest:
        old_segments = () if before is None else before.segments
        with explain_full_disk(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with output_lock(self.folder):
                self._require_unchanged(before)
                progress = self._start(before, provenance, resume)
                try:
                    segments = [*old_segments, *progress.segments]
                    remove_unlisted(self.folder, segments, before and before.word_folder)
                    num_done = sum(segment.texts for segment in progress.segments)
                    for segment in self._segments(islice(texts, num_done, None), segments):
                        segments.append(segment)
                        new = tuple(segments[len(old_segments) :])
                        progress = BuildProgress(provenance=dict(provenance), segments=new)
                        write_settings(self.folder / PROGRESS_FILE, progress)
                        self.log(f"indexed {sum(s.texts for s in segments):,} texts")
                    if len(segments) == len(old_segments):
                        raise UserError("there are no texts to index: every line or row is empty")
                    return self._finish(before, segments)
                except UserError:
                    if not resume:
                        self._discard(before)
                    raise

    def _require_unchanged(self, before: IndexManifest | None) -> None:
        """Raise UserError if another process has finished an index here meanwhile."""
        is_complete = (self.folder / MANIFEST_FILE).is_file()
        if before != (read_manifest(self.folder) if is_complete else None):
            raise UserError(f"{self.folder} was changed by another process: run again")

    def _start(
        self, before: IndexManifest | None, provenance: Mapping[str, str], resume: bool
    ) -> BuildProgress:
        """Return the progress of the run to continue, or that of a new one."""
        file = self.folder / PROGRESS_FILE
        progress = read_settings(file, BuildProgress) if file.is_file() else None
        names = {segment.name for segment in progress.segments} if progress else set[str]()
        if before and names and names <= {segment.name for segment in before.segments}:
            file.unlink()  # left by a run that was killed when it had finished
            progress = None
        if progress is None:
            if before is not None and resume:
                raise UserError(
                    f"{self.folder} has {before.num_texts:,} texts and no unfinished run: leave "
                    f"--resume out to add more"
                )
            if before is not None:
                self._check_probe()
            progress = BuildProgress(provenance=dict(provenance))
            write_settings(file, progress)
            return progress
        if not resume:
            raise UserError(
                f"{self.folder} was left by an interrupted run: add --resume, or remove the folder"
                if before is None
                else f"{self.folder} has an interrupted --add: run it again with --resume, or "
                f"remove {file} to forget it"
            )
        for name, value in provenance.items():
            if progress.provenance.get(name) != value:
                raise UserError(
                    f"{self.folder} was started with another {name}: use the same one, or remove "
                    f"it to start again"
                )
        for segment in progress.segments:
            check_files(self.folder / segment.folder, segment.files, is_content_checked=True)
        self._check_probe()
        return progress

    def _segments(
        self, texts: Iterator[IdentifiedText], before: list[SegmentInfo]
    ) -> Iterator[SegmentInfo]:
        """Write segments until there are no more texts."""
        number = len(before)
        while (first := next(texts, None)) is not None:
            yield self._write_segment(f"{number:06d}", chain([first], texts))
            number += 1

    def _write_segment(self, name: str, texts: Iterable[IdentifiedText]) -> SegmentInfo:
        path = self.folder / SEGMENTS_FOLDER / name
        with atomic_folder(path) as folder:
            num_texts = TextSegment.write(folder, texts, self.settings.segment_texts)
            num_chunks = self._write_chunks(folder)
            if self.encoder is not None:
                segment = TextSegment(folder)
                self._write_probe(segment)
                vectors = map(self._encode, _batches(segment))
                vector_segment = VECTOR_SEGMENTS[self.encoder.representation]
                vector_segment.write(folder, vectors, num_chunks or num_texts, self.settings)
                self._report_truncation(segment)
        files = describe_files(path)
        return SegmentInfo(name=name, texts=num_texts, chunks=num_chunks, files=files)

    def _encode(self, texts: list[str]) -> TextVectors:
        """Return the vectors of texts, or of all their chunks."""
        assert self.encoder is not None
        if self.settings.chunk_tokens is None:
            return self.encoder.encode_documents(texts)
        parts = self._dense_encoder.encode_chunks(texts, self.settings.chunk_tokens)
        return np.concatenate(parts)

    def _report_truncation(self, segment: TextSegment) -> None:
        """Log how many texts of a segment are truncated."""
        if not isinstance(self.encoder, DenseEncoder) or self.settings.chunk_tokens is not None:
            return
        model, prompted = self.encoder.model, self.encoder.prompted_documents
        if num_truncated := sum(model.num_truncated(prompted(b)) for b in _batches(segment)):
            self.log(
                f"truncated {count_noun(num_truncated, 'text')} to {model.max_length} tokens: "
                f"index texts in parts with --chunk-tokens"
            )

    def _write_chunks(self, folder: Path) -> int | None:
        """Write the chunks of the texts of a segment; return their number, None for whole texts."""
        max_tokens = self.settings.chunk_tokens
        if max_tokens is None:
            return None
        offsets = self._dense_encoder.chunk_offsets
        contents = (text.content for text in TextSegment(folder).whole_texts())
        return TextSegment.write_chunks(folder, (offsets(c, max_tokens) for c in contents))

    @property
    def _dense_encoder(self) -> DenseEncoder:
        assert isinstance(self.encoder, DenseEncoder), "settings allow chunks of dense vectors only"
        return self.encoder

    def _finish(self, before: IndexManifest | None, segments: list[SegmentInfo]) -> IndexManifest:
        """Write BM25 over all texts, and the manifest."""
        word_folder = None
        if self.settings.uses_words:
            word_folder = f"words-{len(segments)}"
            texts = (
                text.content
                for segment in segments
                for text in TextSegment(self.folder / segment.folder)
            )
            with atomic_folder(self.folder / word_folder) as folder:
                Bm25Index.write(folder, texts, self.settings.stop_words)
        manifest = IndexManifest(
            settings=self.settings,
            representation=None if self.encoder is None else self.encoder.representation,
            model=before.model if before is not None else self.model,
            segments=tuple(segments),
            word_folder=word_folder,
            word_files=describe_files(self.folder / word_folder) if word_folder else {},
        )
        write_settings(self.folder / MANIFEST_FILE, manifest)
        (self.folder / PROGRESS_FILE).unlink()
        remove_unfinished(self.folder / PROBE_FILE)  # which is not written again
        remove_unlisted(self.folder, segments, word_folder)
        return manifest

    def _write_probe(self, segment: TextSegment) -> None:
        """Keep the vectors of the first text, by which a model is recognised."""
        assert self.encoder is not None
        if not (self.folder / PROBE_FILE).is_file():
            probe = flatten_vectors(self.encoder.encode_documents([segment[0].content]))
            with atomic_file(self.folder / PROBE_FILE) as file, open(file, "wb") as stream:
                np.save(stream, probe)

    def _check_probe(self) -> None:
        first = self.folder / SEGMENTS_FOLDER / "000000"
        if self.encoder is not None and first.is_dir():
            require_same_model(self.folder, self.encoder, TextSegment(first)[0])

    def _discard(self, before: IndexManifest | None) -> None:
        """Remove what this run has written."""
        if before is not None:
            remove_unlisted(self.folder, before.segments, before.word_folder)
            (self.folder / PROGRESS_FILE).unlink(missing_ok=True)
            return
        for name in (PROGRESS_FILE, PROBE_FILE):
            (self.folder / name).unlink(missing_ok=True)
        remove_unlisted(self.folder, (), None)
        for folder in (self.folder / SEGMENTS_FOLDER, self.folder):
            with suppress(OSError):  # it was never there, or holds other files
                folder.rmdir()


def _batches(segment: TextSegment) -> Iterator[list[str]]:
    contents = (text.content for text in segment.whole_texts())
    while batch := list(islice(contents, ENCODED_TEXTS)):
        yield batch


def require_same_model(
    folder: Path,
    encoder: RetrievalEncoder,
    first: IdentifiedText,
    is_student: bool = False,
) -> None:
    """Raise UserError unless a model gives the first text of an index the vectors that it had.

    The vector of a student need only be similar.
    """
    file = folder / PROBE_FILE
    try:
        expected = np.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise damaged_index_error(file, str(error)) from None
    vector = flatten_vectors(encoder.encode_documents([first.content]))
    norms = float(np.linalg.norm(vector) * np.linalg.norm(expected))
    min_cosine = MIN_STUDENT_COSINE if is_student else MIN_PROBE_COSINE
    if vector.shape == expected.shape and (vector @ expected >= min_cosine * norms):
        return
    if is_student:
        raise UserError(
            f"the query model gives the first text of {folder} another vector than the model of "
            f"the index: name a student that pretrain --distillation leaf has trained from it"
        )
    raise UserError(
        f"{folder} was made by another model: it gives the first text other vectors; name the "
        f"right one with --model"
    )


def remove_unlisted(folder: Path, segments: Iterable[SegmentInfo], word_folder: str | None) -> None:
    """Remove segments and BM25 indexes that are not listed: those of a killed or finished run."""
    names = {segment.name for segment in segments}
    for path in (folder / SEGMENTS_FOLDER).glob("[0-9]*"):
        if path.name not in names:
            shutil.rmtree(path)
    for path in folder.glob("words-*"):
        if path.name != word_folder:
            shutil.rmtree(path)
