"""Pairs of texts: whether they follow, mean the same, or belong together."""

from bertwright.tasks.answers import ClassAnswer, ClosenessAnswer
from bertwright.tasks.catalogue.making import table_task
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.formats.words_in_context import WordInContextReader
from bertwright.tasks.task import Task

_THREE = ("CONTRADICTION", "ENTAILMENT", "NEUTRAL")

_PAIR = Columns("text", "pair", "label")

TASKS = (
    table_task(
        "sick",
        Columns("sentence_A", "sentence_B", "entailment_judgment"),
        metrics=("accuracy",),
        labels=_THREE,
        source="Marelli et al. 2014",
    ),
    table_task(
        "sick-relatedness",
        Columns("sentence_A", "sentence_B", "relatedness_score"),
        "number",
        source="Marelli et al. 2014",
    ),
    table_task(
        "sick-similarity",
        Columns("sentence_A", "sentence_B", "relatedness_score"),
        ClosenessAnswer(highest=5.0),
        source="Marelli et al. 2014",
    ),
    table_task(
        "sts-b-similarity",
        Columns("sentence1", "sentence2", "score"),
        ClosenessAnswer(highest=5.0),
        source="Cer et al. 2017",
    ),
    table_task("similarity", _PAIR, ClosenessAnswer(highest=5.0)),
    table_task(
        "retrieval",
        Columns("text", "pair", None),
        ClosenessAnswer(loss="in-batch"),
        ("ndcg@10", "mrr@10", "recall@1"),
    ),
    table_task("rank", _PAIR, "relevance"),
    Task(
        "wic",
        ClassAnswer(),
        WordInContextReader(),
        ("accuracy",),
        ("F", "T"),
        "Pilehvar and Camacho-Collados 2019",
    ),
)
