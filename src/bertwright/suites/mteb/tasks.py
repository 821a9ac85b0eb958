"""Tasks of a suite as tasks of mteb, over the examples that the suite has read."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict
from mteb import TaskMetadata
from mteb.abstasks import AbsTask, AbsTaskRetrieval, AbsTaskSTS
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from bertwright.suites.tasks import PreparedTask
from bertwright.suites.tasks.probe import PreparedProbe
from bertwright.suites.tasks.retrieval import PreparedRetrieval
from bertwright.suites.tasks.similarity import PreparedSimilarity

SPLIT = "test"


def as_mteb_task(name: str, task: PreparedTask) -> AbsTask | None:
    """Return a task for ``mteb.evaluate``; None for one that needs more than text vectors."""
    match task:
        case PreparedSimilarity():
            return SuiteSimilarity(name, task)
        case PreparedRetrieval():
            return SuiteRetrieval(name, task)
        case PreparedProbe():
            return SuiteProbe(name, task)
        case _:
            return None


class SuiteSimilarity(AbsTaskSTS):
    """Similarity of text pairs: mteb's evaluator of STS."""

    def __init__(self, name: str, task: PreparedSimilarity) -> None:
        self.metadata = _metadata(name, task, "STS", "cosine_spearman")
        super().__init__()
        columns = {
            "sentence1": task.firsts,
            "sentence2": task.seconds,
            "score": task.references,
        }
        self.dataset = _dataset(Dataset.from_dict(columns))
        self.data_loaded = True


class SuiteRetrieval(AbsTaskRetrieval):
    """Retrieval: mteb's evaluator, which scores with trec_eval."""

    def __init__(self, name: str, task: PreparedRetrieval) -> None:
        self.metadata = _metadata(name, task, "Retrieval", "ndcg_at_10")
        super().__init__()
        query_ids = [str(number) for number in range(len(task.queries))]
        text_ids = [text.id for text in task.retrieval.texts]
        relevant = {
            query_id: dict.fromkeys(sorted(query.relevant), 1)
            for query_id, query in zip(query_ids, task.retrieval.queries, strict=True)
        }
        self.dataset = {
            "default": {
                SPLIT: {
                    "corpus": Dataset.from_dict({"id": text_ids, "text": task.texts}),
                    "queries": Dataset.from_dict({"id": query_ids, "text": task.queries}),
                    "relevant_docs": relevant,
                    "top_ranked": None,
                }
            }
        }
        self.data_loaded = True


class SuiteProbe(AbsTask):
    """Classes of texts or pairs: the vectors come from mteb's model, the probe is the suite's.

    The classification of mteb draws a few examples for each class, ten times, and knows no pairs.
    """

    abstask_prompt = "Classify texts."

    def __init__(self, name: str, task: PreparedProbe) -> None:
        self.metadata = _metadata(name, task, "Classification", task.metric)
        super().__init__()
        self._task = task
        self.dataset = _dataset(Dataset.from_dict({"text": [e.texts[0] for e in task.dev]}))
        self.data_loaded = True

    def _get_content_columns(self) -> dict[str, Any]:
        return {"text": "text"}

    def _evaluate_subset(
        self,
        model: Any,
        data_split: Any,
        *,
        encode_kwargs: Any,
        hf_split: str,
        hf_subset: str,
        **_: Any,
    ) -> Any:
        def embed(texts: Sequence[str]) -> NDArray[np.float32]:
            rows: Any = [{"text": text} for text in texts]
            batches = DataLoader(rows, batch_size=32)
            vectors = model.encode(
                batches,
                task_metadata=self.metadata,
                hf_split=hf_split,
                hf_subset=hf_subset,
                **encode_kwargs,
            )
            return np.asarray(vectors, np.float32)

        sums = self._task.sums(self._task.predict_from_vectors(embed))
        return {self._task.metric: float(sums.statistic(sums.values.sum(0)))}

    def _calculate_descriptive_statistics_from_split(self, *_: Any, **__: Any) -> Any:
        return {"num_samples": self._task.num_examples}


def _dataset(test: Dataset) -> Any:
    return {"default": DatasetDict({SPLIT: test})}


def _metadata(name: str, task: PreparedTask, kind: Any, main_score: str) -> TaskMetadata:
    return TaskMetadata(
        dataset={"path": "local", "revision": "local"},
        name=f"bertwright-{name}",
        description=task.method,
        type=kind,
        category="t2t",
        eval_splits=[SPLIT],
        eval_langs=["eng-Latn"],
        main_score=main_score,
        is_public=True,
    )
