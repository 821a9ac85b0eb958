"""Text vectors: how similar they find sentences, against their speed, dimensions and bits."""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertwright.core.errors import UserError
from bertwright.core.significance import ConfidenceInterval, bootstrap_statistic
from bertwright.interop.loading import load
from bertwright.models.text_model import TextModel
from bertwright.retrieval.evaluation import DEPTH, ranking_scores
from bertwright.retrieval.rankings import top_ranking
from bertwright.retrieval.vectors.segment import compress_rows, normalise_rows
from bertwright.retrieval.wordnet import RetrievalTask
from bertwright.tasks.catalogue import find_task
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.metrics.metrics import SPEARMAN

FILES = {
    "sts-b": ("sts-b-similarity", ("glue/STS-B/dev.tsv",)),
    "sick": ("sick-similarity", ("sick/dev.tsv", "sick/train.tsv")),
}
"""Names of the data sets, their tasks, and their files: labels are only scored, not trained on."""

MODEL_COLUMNS = {
    "model": "model",
    "layers": "layers",
    "parameters": "parameters",
    "dimensions": "dimensions",
    **{
        key + suffix: heading + title
        for key, heading in (("sts-b", "STS-B dev"), ("sick", "SICK"))
        for suffix, title in (
            ("", ", Spearman x 100"),
            ("_interval", ", 95 % interval"),
            ("_points", ", points over the first"),
            ("_percent", ", % of the first"),
        )
    },
    "relative_speed": "times as fast as the first",
}
"""Columns of the table of models, by key."""

SIZE_COLUMNS = {
    "model": "model",
    "dimensions": "dimensions",
    "type": "type",
    "bytes": "bytes a vector",
    "sts-b": "STS-B dev, Spearman x 100",
    "sick": "SICK, Spearman x 100",
    "ndcg@10": "glosses from examples, nDCG@10",
}
"""Columns of the table of dimensions and types, by key."""

VectorBits = Literal["float32", "int8", "binary"]
BITS: dict[VectorBits, int] = {"float32": 32, "int8": 8, "binary": 1}

NUM_TIMED_TEXTS = 256

COSINE_DIGITS = 6
"""Digits of cosines, so that rounding does not rank pairs of the same text."""

QUERIES_AT_ONCE = 64


class SimilarityPairs:
    """The pairs of a data set, with the human scores of their similarity."""

    def __init__(self, name: str, folder: Path) -> None:
        task_name, files = FILES[name]
        paths = [folder / file for file in files]
        if missing := next((path for path in paths if not path.is_file()), None):
            raise UserError(f"there is no file {missing}: name the data folder with --data")
        task = find_task(task_name)
        examples = [example for path in paths for example in task.read_examples(path)]
        pairs = [example for example in examples if isinstance(example, Example)]
        self.firsts = [example.text for example in pairs]
        self.seconds = [example.pair or "" for example in pairs]
        self.scores = [float(example.label) for example in pairs]  # type: ignore[arg-type]

    def spearman(self, first: NDArray[Any], second: NDArray[Any]) -> ConfidenceInterval:
        """Return the rank correlation, times 100, of the cosines of vectors (N, D)."""
        cosines = (normalise_rows(first) * normalise_rows(second)).sum(1, dtype=np.float64)
        cosines = cosines.round(COSINE_DIGITS).tolist()
        sums = SPEARMAN.sums(self.scores, cosines)
        interval, _ = bootstrap_statistic(sums.statistic, sums.values)
        low, high = sorted((100 * interval.low, 100 * interval.high))
        return ConfidenceInterval(100 * interval.value, low, high, interval.num_units)


def compare_models(folders: Sequence[Path], data: Path, num_rounds: int) -> list[dict[str, Any]]:
    """Return a row for each model, against the first one."""
    data_sets = {name: SimilarityPairs(name, data) for name in FILES}
    models = [load(folder, "float32") for folder in folders]
    texts = [text for pairs in data_sets.values() for text in pairs.firsts[:NUM_TIMED_TEXTS]]
    seconds = _time_interleaved(models, texts, num_rounds)
    rows: list[dict[str, Any]] = []
    for folder, model, times in zip(folders, models, seconds, strict=True):
        network = model.model
        row: dict[str, Any] = {
            "model": folder.name,
            "layers": len(network.encoder.blocks),
            "parameters": sum(p.numel() for p in network.encoder.parameters()),
        }
        for name, pairs in data_sets.items():
            first, second = model.embed(pairs.firsts), model.embed(pairs.seconds)
            score = pairs.spearman(first, second)
            row["dimensions"] = first.shape[1]
            row |= {name: score.value, f"{name}_interval": [score.low, score.high]}
            if rows:
                row[f"{name}_points"] = score.value - rows[0][name]
                row[f"{name}_percent"] = 100 * score.value / rows[0][name]
        row["relative_speed"] = median(a / b for a, b in zip(seconds[0], times, strict=True))
        rows.append(row)
    return rows


def _time_interleaved(
    models: Sequence[TextModel], texts: Sequence[str], num_rounds: int
) -> list[list[float]]:
    """Return the seconds of every model by round, without the first round, which warms up."""
    seconds: list[list[float]] = [[] for _ in models]
    for _ in range(num_rounds + 1):
        for model, times in zip(models, seconds, strict=True):
            start = time.perf_counter()
            model.embed(texts)
            times.append(time.perf_counter() - start)
    return [times[1:] for times in seconds]


def compress(vectors: NDArray[Any], dimensions: int, bits: VectorBits) -> NDArray[Any]:
    """Return the first dimensions of vectors (N, D) in fewer bits; ``binary`` keeps the signs.

    Vectors are scaled to length 1 after they are truncated.
    """
    unit = normalise_rows(vectors, dimensions)
    return (
        np.where(unit > 0, np.int8(1), np.int8(-1))
        if bits == "binary"
        else compress_rows(unit, bits)
    )


def compare_sizes(
    folder: Path, data: Path, dimensions: Sequence[int], task: RetrievalTask | None
) -> list[dict[str, Any]]:
    """Return a row for each number of dimensions and each type of a model's vectors.

    Without ``dimensions``, they are halved until 16 are left. ``task`` is also scored, if given.
    """
    model = load(folder)
    data_sets = {name: SimilarityPairs(name, data) for name in FILES}
    vectors = {
        name: (model.embed(pairs.firsts), model.embed(pairs.seconds))
        for name, pairs in data_sets.items()
    }
    width = vectors["sick"][0].shape[1]
    sizes = list(dimensions) or [size for n in range(8) if (size := width >> n) >= 16]
    if too_many := next((size for size in sizes if not 1 <= size <= width), None):
        raise UserError(f"--dimensions: vectors have 1 to {width} dimensions, not {too_many}")
    texts = queries = None
    if task is not None:
        texts = model.embed([text.content for text in task.texts])
        queries = model.embed([query.text for query in task.queries])
    rows: list[dict[str, Any]] = []
    for size in sizes:
        for bits in BITS:
            row: dict[str, Any] = {"model": folder.name, "dimensions": size, "type": bits}
            row["bytes"] = -(-size * BITS[bits] // 8)
            for name, pairs in data_sets.items():
                first, second = (compress(part, size, bits) for part in vectors[name])
                row[name] = pairs.spearman(first, second).value
            if task is not None and texts is not None and queries is not None:
                row["ndcg@10"] = _ndcg(
                    task, compress(queries, size, bits), compress(texts, size, bits)
                )
            rows.append(row)
    return rows


def _ndcg(task: RetrievalTask, queries: NDArray[Any], texts: NDArray[Any]) -> float:
    """Return nDCG@10 of the texts with the highest cosines."""
    unit_queries, unit_texts = normalise_rows(queries), normalise_rows(texts)
    rankings: list[list[str]] = []
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        for scores in unit_queries[start : start + QUERIES_AT_ONCE] @ unit_texts.T:
            positions = top_ranking(scores, DEPTH).positions
            rankings.append([task.texts[position].id for position in positions])
    return ranking_scores(rankings, [query.relevant for query in task.queries])["ndcg@10"].value
