"""A search index: texts, found by the vectors of a model, by their words, or by both."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bertwright.core.config import InferencePrecision, to_user_error
from bertwright.core.errors import UserError
from bertwright.data.readers.identified_texts import IdentifiedText
from bertwright.data.shards.dataset import MAX_BYTES_CHECKED_ON_OPEN
from bertwright.interop.loading import load
from bertwright.models.retrieval_encoder import RetrievalEncoder, TextVectors
from bertwright.models.text_model import TextModel
from bertwright.retrieval.bm25 import Bm25Index
from bertwright.retrieval.manifest import (
    IndexManifest,
    check_files,
    damaged_index_error,
    read_manifest,
)
from bertwright.retrieval.rankings import Ranking, fuse_rankings, merge_rankings
from bertwright.retrieval.settings import IndexKind, IndexSettings
from bertwright.retrieval.text_segment import TextSegment
from bertwright.retrieval.vectors import VECTOR_SEGMENTS
from bertwright.retrieval.writing import (
    IndexWriter,
    require_same_model,
)

FUSED_TEXTS = 100
"""Number of texts of each ranking that is fused, at least."""


@dataclass(frozen=True)
class SearchHit:
    """A text that was found, and its score: higher is better, within one query.

    A chunk of a text has the characters [start, stop) of it.
    """

    id: str
    score: float
    text: str
    title: str | None = None
    start: int | None = None
    stop: int | None = None

    @property
    def content(self) -> str:
        """Return the title and the text, as they are encoded."""
        return IdentifiedText(self.id, self.text, self.title).content


Reranker = Callable[[str, Sequence[SearchHit]], list[SearchHit]]
"""A function that sorts the hits of a query again."""


class SearchIndex:
    """An index in a folder, opened for search; its files are memory-mapped.

    Calls from several threads must take turns.
    """

    def __init__(
        self, folder: Path, manifest: IndexManifest, encoder: RetrievalEncoder | None
    ) -> None:
        self.folder, self.manifest, self.encoder = folder, manifest, encoder
        settings = manifest.settings
        try:
            folders = [folder / segment.folder for segment in manifest.segments]
            self._texts = [TextSegment(path) for path in folders]
            self._vectors = [
                VECTOR_SEGMENTS[encoder.representation].open(path, segment.num_vectors, settings)
                for path, segment in zip(folders, manifest.segments, strict=True)
                if encoder is not None
            ]
            self._words = None
            if manifest.word_folder is not None:
                self._words = Bm25Index.open(folder / manifest.word_folder, settings.stop_words)
        except (OSError, ValueError, KeyError) as error:
            raise damaged_index_error(folder, str(error)) from None
        self._starts = [0]
        for segment in manifest.segments:
            self._starts.append(self._starts[-1] + segment.num_vectors)

    @classmethod
    def build(
        cls,
        texts: Iterable[str | IdentifiedText],
        folder: str | Path,
        model: TextModel | str | Path | None = None,
        *,
        kind: IndexKind | None = None,
        precision: InferencePrecision | None = None,
        add: bool = False,
        resume: bool = False,
        provenance: Mapping[str, str] | None = None,
        log: Callable[[str], None] = lambda _: None,
        **settings: Any,
    ) -> "SearchIndex":
        """Index texts in a folder, in bounded memory, and open the index.

        ``texts`` without an id get their number, from 1. ``precision`` is that of a model given by
        its path. ``kind`` is by default the representation of the model's vectors.
        ``settings`` are further fields of :class:`~bertwright.retrieval.settings.IndexSettings`.
        ``add`` appends to an existing index, with its settings. ``resume`` continues a run that was
        killed, given the same texts; ``provenance`` is what both runs must share. Errors: UserError
        for settings that do not fit the model, for no texts, and for a folder in use.
        """
        folder = Path(folder)
        if add:
            before = read_manifest(folder)
            loaded = _load_model(model, before, precision)
            index_settings = before.settings
            if kind is not None or settings:
                raise UserError("texts are added with the settings of the index: leave others out")
        else:
            loaded = None if model is None else _as_model(model, precision)
            index_settings = _parse_settings(kind, loaded, settings)
        encoder = None if loaded is None else loaded.retrieval_encoder()
        writer = IndexWriter(folder, index_settings, encoder, _model_path(model), log)
        stated = {"settings": index_settings.model_dump_json(), **(provenance or {})}
        items = _identified(texts)
        write = writer.append if add else writer.create
        return cls(folder, write(items, stated, resume), encoder)

    @classmethod
    def open(
        cls,
        folder: str | Path,
        model: TextModel | str | Path | None = None,
        precision: InferencePrecision | None = None,
        query_model: TextModel | str | Path | None = None,
    ) -> "SearchIndex":
        """Open an index, by default with the model whose path it holds.

        ``query_model`` is a smaller model to encode queries with, whose vectors are those of the
        index's model as far as it has learned them, such as its student
        (``pretrain --distillation leaf``). The content of an index of up to a gigabyte is compared
        with its checksums. Errors: UserError for a folder that is no index, for damaged files, and
        for another model.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        is_small = manifest.num_bytes <= MAX_BYTES_CHECKED_ON_OPEN
        check_files(folder, manifest.files, is_content_checked=is_small)
        if not manifest.settings.uses_model and query_model is not None:
            raise UserError("an index of kind bm25 uses no model: leave --query-model out")
        loaded = _load_model(model or query_model, manifest, precision)
        if loaded is None:
            return cls(folder, manifest, None)
        option = "--model" if query_model is None else "--query-model"
        encoder = loaded.retrieval_encoder()
        if encoder.representation != manifest.representation:
            raise UserError(
                f"{folder} holds {manifest.representation} vectors, and the model gives "
                f"{encoder.representation} vectors: name the right one with {option}"
            )
        index = cls(folder, manifest, encoder)
        require_same_model(folder, encoder, index.text(0), is_student=query_model is not None)
        return index

    def __len__(self) -> int:
        """Return the number of texts, or of the chunks that they are split into."""
        return self._starts[-1]

    def text(self, position: int) -> IdentifiedText:
        """Return the text or the chunk at a position of a ranking."""
        segment, position = self._locate(position)
        return segment[position]

    def whole_texts(self) -> Iterator[IdentifiedText]:
        """Yield the texts, not split into chunks."""
        return chain.from_iterable(segment.whole_texts() for segment in self._texts)

    def search(
        self,
        queries: Sequence[str],
        top: int = 10,
        *,
        reranker: Reranker | None = None,
        rerank_depth: int = 50,
    ) -> list[list[SearchHit]]:
        """Return the best texts for each query, best first.

        A ``reranker`` sorts the best ``rerank_depth`` texts again. Words and sparse vectors only
        find texts that share a term with the query, so there may be fewer than ``top``.
        """
        depth = top if reranker is None else max(top, rerank_depth)
        hits = [self.hits(ranking) for ranking in self.rank(queries, depth)]
        if reranker is None:
            return hits
        return [reranker(*pair)[:top] for pair in zip(queries, hits, strict=True)]

    def search_whole_texts(self, queries: Sequence[str], depth: int) -> list[list[SearchHit]]:
        """Return the texts of the best ``depth`` texts or chunks for each query, best first.

        Each text is returned once, with the score of its best chunk.
        """
        return [self._whole_text_hits(ranking) for ranking in self.rank(queries, depth)]

    def _whole_text_hits(self, ranking: Ranking) -> list[SearchHit]:
        scores: dict[IdentifiedText, float] = {}
        for position, score in zip(
            ranking.positions.tolist(), ranking.scores.tolist(), strict=True
        ):
            segment, position = self._locate(position)
            scores.setdefault(segment.whole_text(position), score)
        return [SearchHit(text.id, score, text.text, text.title) for text, score in scores.items()]

    def _locate(self, position: int) -> tuple[TextSegment, int]:
        """Return the segment of a position, and the position in it."""
        number = bisect_right(self._starts, position) - 1
        return self._texts[number], position - self._starts[number]

    def hits(self, ranking: Ranking) -> list[SearchHit]:
        """Return the texts of a ranking."""
        hits: list[SearchHit] = []
        for position, score in zip(
            ranking.positions.tolist(), ranking.scores.tolist(), strict=True
        ):
            text = self.text(position)
            hits.append(SearchHit(text.id, score, text.text, text.title, text.start, text.stop))
        return hits

    def rank(
        self, queries: Sequence[str], top: int, vectors: "TextVectors | None" = None
    ) -> list[Ranking]:
        """Return the ranking of the best texts for each query.

        ``vectors`` are those of the queries, by default computed here.
        """
        if not queries:
            return []
        if self._words is None:
            return self._rank_by_vectors(queries, top, vectors)
        if self.encoder is None:
            return self._words.rank(queries, top)
        depth = max(top, FUSED_TEXTS)
        by_vectors = self._rank_by_vectors(queries, depth, vectors)
        by_words = self._words.rank(queries, depth)
        return [fuse_rankings(pair, top) for pair in zip(by_vectors, by_words, strict=True)]

    def _rank_by_vectors(
        self, queries: Sequence[str], top: int, vectors: "TextVectors | None"
    ) -> list[Ranking]:
        assert self.encoder is not None
        if vectors is None:
            vectors = self.encoder.encode_queries(queries)
        by_segment = [segment.rank(vectors, top) for segment in self._vectors]
        offsets = self._starts[:-1]
        return [
            merge_rankings(rankings, offsets, top) for rankings in zip(*by_segment, strict=True)
        ]


def index_model(folder: Path) -> str | None:
    """Return the path of the model of an index; None for BM25, which has none.

    Errors: UserError for an index that was made by a model without a path.
    """
    manifest = read_manifest(folder)
    return _require_model(manifest) if manifest.settings.uses_model else None


def _identified(texts: Iterable[str | IdentifiedText]) -> Iterable[IdentifiedText]:
    return (
        IdentifiedText(str(number), text) if isinstance(text, str) else text
        for number, text in enumerate(texts, start=1)
    )


def _parse_settings(
    kind: IndexKind | None, model: TextModel | None, settings: Mapping[str, Any]
) -> IndexSettings:
    if kind is None:
        if model is None:
            raise UserError(
                "an index needs a model: name its folder with --model, or use --kind bm25"
            )
        kind = model.retrieval_encoder().representation
    try:
        return IndexSettings(kind=kind, **settings)
    except ValidationError as error:
        raise to_user_error(error, "index") from None


def _as_model(
    model: TextModel | str | Path, precision: InferencePrecision | None = None
) -> TextModel:
    return model if isinstance(model, TextModel) else load(model, precision)


def _model_path(model: TextModel | str | Path | None) -> str | None:
    """Return the path of a model to store, absolute for a folder."""
    if model is None or isinstance(model, TextModel):
        return None
    return str(Path(model).resolve()) if Path(model).exists() else str(model)


def _load_model(
    model: TextModel | str | Path | None,
    manifest: IndexManifest,
    precision: InferencePrecision | None,
) -> TextModel | None:
    """Return the model of an index; UserError if it is needed and unknown."""
    if not manifest.settings.uses_model:
        if model is not None:
            raise UserError("an index of kind bm25 uses no model: leave --model out")
        return None
    return _as_model(model or _require_model(manifest), precision)


def _require_model(manifest: IndexManifest) -> str:
    if manifest.model is None:
        raise UserError("the index does not know the path of its model: name it with --model")
    return manifest.model
