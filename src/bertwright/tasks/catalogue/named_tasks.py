"""Named tasks on text pairs, tagged words, questions and options."""

from bertwright.tasks.catalogue.registry import table_task, tagging_task
from bertwright.tasks.formats.multiple_choice import (
    CodahReader,
    DreamReader,
    RaceReader,
    SwagReader,
)
from bertwright.tasks.formats.parallel_texts import ParallelTextReader
from bertwright.tasks.formats.punctuation_restoration import TAGS, RestorationReader
from bertwright.tasks.formats.squad import SquadReader
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.formats.tagged_sentences import TaggedSentenceReader
from bertwright.tasks.formats.titles import TitleReader
from bertwright.tasks.formats.word_in_context import WordInContextReader
from bertwright.tasks.outputs import (
    ClassificationOutput,
    DependencyHeadOutput,
    MultipleChoiceOutput,
    SimilarityOutput,
    SpanOutput,
    TextOutput,
    TokenClassificationOutput,
)
from bertwright.tasks.task import Task

_THREE_CLASSES = ("CONTRADICTION", "ENTAILMENT", "NEUTRAL")
_PAIR = Columns("text", "pair", "label")
_WORD_METRICS = ("accuracy", "macro-f1")

TASKS = (
    table_task(
        "sick",
        Columns("sentence_A", "sentence_B", "entailment_judgment"),
        metrics=("accuracy",),
        labels=_THREE_CLASSES,
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
        SimilarityOutput(max_label=5.0),
        source="Marelli et al. 2014",
    ),
    table_task(
        "sts-b-similarity",
        Columns("sentence1", "sentence2", "score"),
        SimilarityOutput(max_label=5.0),
        source="Cer et al. 2017",
    ),
    table_task("similarity", _PAIR, SimilarityOutput(max_label=5.0)),
    table_task(
        "retrieval",
        Columns("text", "pair", None),
        SimilarityOutput(loss="in-batch"),
        ("ndcg@10", "mrr@10", "recall@1"),
    ),
    table_task("rank", _PAIR, "relevance"),
    Task(
        "wic",
        ClassificationOutput(),
        WordInContextReader(),
        ("accuracy",),
        ("F", "T"),
        "Pilehvar and Camacho-Collados 2019",
    ),
    tagging_task("ner"),
    tagging_task("conll2003", source="Tjong Kim Sang and De Meulder 2003"),
    tagging_task("iob2"),
    tagging_task("upos", "upos", _WORD_METRICS),
    tagging_task("xpos", "xpos", _WORD_METRICS),
    tagging_task("feats", "feats", _WORD_METRICS),
    Task(
        "dependency-heads",
        DependencyHeadOutput(),
        TaggedSentenceReader(column="head"),
        source="Wang et al. 2021",
    ),
    Task(
        "restoration",
        TokenClassificationOutput(),
        RestorationReader(),
        ("macro-f1", "accuracy"),
        TAGS,
    ),
    Task("squad1", SpanOutput(), SquadReader(answerable_only=True), source="Rajpurkar et al. 2016"),
    Task("squad2", SpanOutput(unanswerable=True), SquadReader(), source="Rajpurkar et al. 2018"),
    Task("race", MultipleChoiceOutput(), RaceReader(), source="Lai et al. 2017"),
    Task("swag", MultipleChoiceOutput(), SwagReader(), source="Zellers et al. 2018"),
    Task("codah", MultipleChoiceOutput(), CodahReader(), source="Chen et al. 2019"),
    Task("dream", MultipleChoiceOutput(), DreamReader(), source="Sun et al. 2019"),
    Task("text-to-text", TextOutput(), ParallelTextReader(), source="Raffel et al. 2020"),
    Task("titles", TextOutput(main_metric="rouge-l", max_target_length=32), TitleReader()),
)
