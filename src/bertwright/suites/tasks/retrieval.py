"""Retrieval: the relevant texts for each query, ranked by the vectors of a model, untrained."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from zlib import crc32

import numpy as np
from pydantic import Field

from bertwright.core.config import quote
from bertwright.core.errors import UserError
from bertwright.data.document import ReadCounts
from bertwright.data.readers.identified_texts import read_identified_texts
from bertwright.data.readers.sources import find_sources
from bertwright.models.text_model import TextModel
from bertwright.retrieval.evaluation import (
    DEPTH,
    JudgedQuery,
    RetrievalTask,
    ranking_sums,
    read_judged_queries,
)
from bertwright.retrieval.rankings import top_matches, top_ranking
from bertwright.retrieval.wordnet import SYNSETS_FILE, load_synsets, retrieval_tasks
from bertwright.suites.tasks.similarity import TF_IDF_COSINE
from bertwright.suites.tasks.suite_task import (
    Predictions,
    PreparedTask,
    SuiteTask,
    require_data,
)
from bertwright.tasks.baselines.tf_idf import TfIdfFeatures
from bertwright.tasks.metrics.metrics import MetricSums
from bertwright.tasks.outputs.vectors.text_vectors import score_matrix

METRIC = "ndcg@10"


@dataclass(frozen=True)
class PreparedRetrieval(PreparedTask):
    """Texts and queries; a prediction is a list of the ids of the best texts, the best first."""

    retrieval: RetrievalTask

    @property
    def metric(self) -> str:
        return "nDCG@10"

    @property
    def unit(self) -> str:
        return "queries"

    @property
    def words_method(self) -> str | None:
        return TF_IDF_COSINE

    @property
    def num_examples(self) -> int:
        return len(self.retrieval.queries)

    @property
    def method(self) -> str:
        return f"zero-shot: {len(self.retrieval.texts):,} texts ranked by their vectors"

    @property
    def texts(self) -> list[str]:
        """The texts that are ranked."""
        return [text.content for text in self.retrieval.texts]

    @property
    def queries(self) -> list[str]:
        """The texts of the queries."""
        return [query.text for query in self.retrieval.queries]

    def predict(self, model: TextModel) -> Predictions:
        encoder = model.retrieval_encoder()
        scores = score_matrix(
            encoder.encode_queries(self.queries), encoder.encode_documents(self.texts)
        )
        return [self._ids(top_ranking(row, DEPTH).positions) for row in scores]

    def predict_from_words(self) -> Predictions:
        features = TfIdfFeatures.fit(self.texts)
        scores = features.matrix(self.queries) @ features.matrix(self.texts).T
        rows = (np.asarray(row.toarray(), np.float32).ravel() for row in scores)
        return [self._ids(top_matches(row, DEPTH).positions) for row in rows]

    def sums(self, predictions: Predictions) -> MetricSums:
        relevant = [query.relevant for query in self.retrieval.queries]
        return ranking_sums(METRIC, predictions, relevant)

    def _ids(self, positions: Sequence[int] | np.ndarray) -> list[str]:
        return [self.retrieval.texts[int(position)].id for position in positions]


class RetrievalSuiteTask(SuiteTask):
    """A retrieval task.

    Attributes:
        max_texts: number of texts that are ranked: all relevant ones, and others drawn by hash;
            None for all.
    """

    max_texts: int | None = Field(default=None, ge=10)

    @abstractmethod
    def read_retrieval(self, data: Path) -> RetrievalTask:
        """Return the texts and queries; UserError for an invalid file."""

    def prepare(self, data: Path) -> PreparedTask:
        retrieval = self.read_retrieval(data)
        queries = retrieval.queries[: self.max_examples]
        if not queries or not retrieval.texts:
            raise UserError(f"{', '.join(map(str, self.files(data)))}: no queries or no texts")
        return PreparedRetrieval(_with_fewer_texts(retrieval, queries, self.max_texts))


class TextRetrievalTask(RetrievalSuiteTask):
    """Your own texts and queries.

    Attributes:
        texts: file of texts with a column ``id``.
        queries: table with a column ``relevant``, a list of ids.
        column: column with the text, in both files.
    """

    kind: Literal["retrieval"] = "retrieval"
    texts: str
    queries: str
    column: str = "text"

    def files(self, data: Path) -> list[Path]:
        return [require_data(data, name) for name in (self.texts, self.queries)]

    def read_retrieval(self, data: Path) -> RetrievalTask:
        texts_file, queries_file = self.files(data)
        sources = find_sources([texts_file], self.column)
        texts = [*read_identified_texts(sources, ReadCounts())]
        numbers = Counter(text.id for text in texts)
        if repeated := next((name for name, number in numbers.items() if number > 1), None):
            raise UserError(f"{texts_file}: several texts have the id {repeated!r}: make it unique")
        queries = [*read_judged_queries(queries_file, self.column, None)]
        if missing := next((q for q in queries if not q.relevant & numbers.keys()), None):
            raise UserError(
                f"{queries_file}: no text in {texts_file} is relevant to the query "
                f"{quote(missing.text)}: check the ids in the column relevant"
            )
        return RetrievalTask(self.title, texts, queries)


class WordNetTask(RetrievalSuiteTask):
    """Words from their glosses, or glosses from examples of their use, in WordNet.

    Attributes:
        folder: folder with ``synsets.jsonl.gz``.
        direction: what is searched with what.
    """

    kind: Literal["wordnet"] = "wordnet"
    folder: str
    direction: Literal["words from glosses", "glosses from examples"]
    max_examples: int | None = Field(default=500, ge=2)

    def files(self, data: Path) -> list[Path]:
        return [require_data(data, f"{self.folder}/{SYNSETS_FILE}")]

    def read_retrieval(self, data: Path) -> RetrievalTask:
        synsets = load_synsets(data / self.folder)
        tasks = retrieval_tasks(synsets, self.max_examples or len(synsets))
        return next(task for task in tasks if task.name == self.direction)


def _with_fewer_texts(
    retrieval: RetrievalTask, queries: Sequence[JudgedQuery], max_texts: int | None
) -> RetrievalTask:
    """Return a task with all relevant texts, and as many others as fit."""
    relevant = {text for query in queries for text in query.relevant}
    texts = retrieval.texts
    if max_texts is not None and len(texts) > max_texts:
        others = [text for text in texts if text.id not in relevant]
        others.sort(key=lambda text: (crc32(text.id.encode()), text.id))
        num_others = max(max_texts - len(relevant), 0)
        kept = relevant | {text.id for text in others[:num_others]}
        texts = [text for text in texts if text.id in kept]
    return RetrievalTask(retrieval.name, texts, queries)
