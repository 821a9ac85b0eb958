"""The tasks of GLUE (Wang et al. 2019), with the metrics of its leaderboard."""

from collections.abc import Sequence

from bertwright.tasks.catalogue.registry import table_task
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.task import Task

_ENTAILMENT = ("entailment", "not_entailment")
_THREE_CLASSES = ("contradiction", "entailment", "neutral")
_BINARY = ("0", "1")
_PAIR = Columns("sentence1", "sentence2", "label")


def _task(
    name: str,
    columns: Columns,
    metrics: Sequence[str] = ("accuracy",),
    labels: Sequence[str] = _BINARY,
    output_type: str = "class",
) -> Task:
    return table_task(
        name, columns, output_type, metrics, labels, "Wang et al. 2019", allow_empty=True
    )


TASKS = (
    _task(
        "cola",
        Columns("sentence", header=("source", "label", "mark", "sentence")),
        ("matthews", "accuracy"),
    ),
    _task("sst-2", Columns("sentence")),
    _task("mrpc", Columns("#1 String", "#2 String", "Quality"), ("accuracy", "positive-f1")),
    _task(
        "sts-b", Columns("sentence1", "sentence2", "score"), ("spearman", "pearson"), (), "number"
    ),
    _task("qqp", Columns("question1", "question2", "is_duplicate"), ("accuracy", "positive-f1")),
    _task("mnli", Columns("sentence1", "sentence2", "gold_label"), labels=_THREE_CLASSES),
    _task("qnli", Columns("question", "sentence"), labels=_ENTAILMENT),
    _task("rte", _PAIR, labels=_ENTAILMENT),
    _task("wnli", _PAIR),
)
"""The tasks in the order of the paper."""
