"""Classification and regression tasks as text: T5's inputs and answers for the tasks of GLUE."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bertwright.core.errors import UserError
from bertwright.tasks.formats.tables import TableReader
from bertwright.tasks.outputs import (
    ClassificationOutput,
    ClassInWordsOutput,
    ClozeOutput,
    GeneratedOutput,
    NumberInWordsOutput,
    RegressionOutput,
)
from bertwright.tasks.task import Task


@dataclass(frozen=True)
class Verbalisation:
    """How a task reads as text: the source, and the word of each class."""

    template: str
    words: Mapping[str, str] = field(default_factory=dict[str, str])


GLUE_AS_TEXT = {
    "cola": Verbalisation("cola sentence: {text}", {"0": "unacceptable", "1": "acceptable"}),
    "sst-2": Verbalisation("sst2 sentence: {text}", {"0": "negative", "1": "positive"}),
    "mrpc": Verbalisation(
        "mrpc sentence1: {text} sentence2: {pair}", {"0": "not_equivalent", "1": "equivalent"}
    ),
    "sts-b": Verbalisation("stsb sentence1: {text} sentence2: {pair}"),
    "qqp": Verbalisation(
        "qqp question1: {text} question2: {pair}", {"0": "not_duplicate", "1": "duplicate"}
    ),
    "mnli": Verbalisation("mnli hypothesis: {pair} premise: {text}"),
    "qnli": Verbalisation("qnli question: {text} sentence: {pair}"),
    "rte": Verbalisation("rte sentence1: {text} sentence2: {pair}"),
    "wnli": Verbalisation(
        "wnli sentence1: {text} sentence2: {pair}", {"0": "not_entailment", "1": "entailment"}
    ),
}
"""Raffel et al. 2020, appendix D."""


def answered_in_words(task: Task) -> Task:
    """Return a task whose classes or numbers a decoder answers in words.

    Tasks beyond GLUE read ``NAME: text``, and their classes are their own words. Errors: UserError
    for other output types.
    """
    has_pair = isinstance(task.reader, TableReader) and task.reader.columns.pair is not None
    default = Verbalisation(f"{task.name}: {{text}}" + " pair: {pair}" * has_pair)
    verbal = GLUE_AS_TEXT.get(task.name, default)
    output: GeneratedOutput
    match task.output_type:
        case ClozeOutput():
            raise UserError("--as-text: a cloze answers in words already: leave one of them out")
        case ClassificationOutput():
            output = ClassInWordsOutput(template=verbal.template, words=dict(verbal.words))
        case RegressionOutput():
            output = NumberInWordsOutput(template=verbal.template)
        case other:
            raise UserError(
                f"--as-text: task {task.name} predicts {other.kind_name()}: choose a task with "
                f"classes or numbers"
            )
    metrics = tuple(name for name in task.metrics if name in output.metrics)
    return replace(task, output_type=output, metrics=metrics)
