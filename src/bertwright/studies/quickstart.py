"""The quickstart: from text that is installed to a model folder that Transformers can load.

The text is the sample that comes with Python packages. Nine in a hundred of its documents are held
out from pre-training, for evaluation and for the fine-tuning task: restoring punctuation and
capitals. The encoder has therefore not seen the task's text. Baselines are the same encoder without
pre-training, and tags chosen without context.
"""

import json
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bertwright.core.errors import MissingExtra
from bertwright.core.files import require_new_folder, write_text
from bertwright.data.deduplication import drop_duplicates
from bertwright.data.document import ReadCounts
from bertwright.data.holdout import HELDOUT, assign_splits
from bertwright.data.preparation import prepare
from bertwright.data.readers.sources import find_sources
from bertwright.data.readers.tables import read_documents
from bertwright.data.sample_text.sample import write_sample_text
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.data.vocabulary_training import train_tokenizer_on_files
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.models.model import Model
from bertwright.models.saving import load_model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.runtime.device import hardware_description, package_versions
from bertwright.studies.quickstart_plot import plot_quickstart
from bertwright.tasks.baselines.frequency import WordTagBaseline
from bertwright.tasks.catalogue import find_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import TaggedSentence
from bertwright.tasks.formats.punctuation_restoration import restoration_examples, split_documents
from bertwright.tasks.outputs import Prediction
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.pretraining.run import PretrainingResult

RECIPE = "modern-tiny"
"""A small recipe, which learns more in a few minutes than a large one."""

HELD_OUT_FRACTION = 0.09
TEST_FRACTION, DEVELOPMENT_FRACTION = 0.25, 0.1
"""Fractions of the held-out documents for testing, and of the rest for development."""

FINE_TUNING: dict[str, Any] = {"epochs": 4, "learning_rate": 1e-3, "batch_size": 16}
"""Settings for both encoders; the learning rate is the best one for the untrained encoder."""

PREPARATION_SECONDS = 60.0
"""Seconds before pre-training, on 2 cores of average speed."""

MASKED_SENTENCE = "This function returns the [MASK] of elements in the list."

Log = Callable[[str], None]


@dataclass(frozen=True)
class QuickstartScores:
    """The macro F1 of the fine-tuned encoder and of baselines, on test documents."""

    name: str
    score: float
    majority: float
    words_alone: float
    untrained: float


@dataclass(frozen=True)
class QuickstartResult:
    """The results of the quickstart; losses are in nats per masked token of held-out text."""

    seconds: float
    heldout_loss: float
    unigram_entropy: float
    masked_accuracy: float
    most_frequent_accuracy: float
    task: QuickstartScores
    export_max_difference: float

    def as_dict(self) -> dict[str, Any]:
        """Return the content of ``result.json``."""
        return {**vars(self), "task": vars(self.task)}

    def table(self) -> list[str]:
        """Return the lines of a table with every metric, followed by its baselines."""
        task = self.task
        lines = [
            ("held-out masked loss, nats", f"{self.heldout_loss:.3f}"),
            ("  unigram entropy", f"{self.unigram_entropy:.3f}"),
            ("masked tokens predicted correctly", f"{self.masked_accuracy:.1%}"),
            ("  always the most frequent", f"{self.most_frequent_accuracy:.1%}"),
            ("punctuation and capitals restored, macro F1", f"{task.score:.3f}"),
            ("  the same encoder, untrained", f"{task.untrained:.3f}"),
            ("  each word's most frequent tag", f"{task.words_alone:.3f}"),
            ("  the most frequent tag", f"{task.majority:.3f}"),
            ("difference to Transformers, at most", f"{self.export_max_difference:.1e}"),
        ]
        return [f"{name:<44}{value:>8}" for name, value in lines]


def quickstart(
    output: Path, minutes: float = 5.0, log: Log = print, seconds_spent: float = 0.0
) -> QuickstartResult:
    """Run all stages and write everything to the folder ``output``.

    ``minutes`` is the time for pre-training; the rest takes one or two more. ``log`` receives a
    line at the end of every stage, then the table. ``seconds_spent`` is the time that passed before
    the call.

    Raises UserError if ``output`` is not empty, and MissingExtra without Transformers.
    """
    require_new_folder(output)
    output = output.absolute()  # "quickstart/encoder" could be a name on the Hub
    if find_spec("transformers") is None:
        raise MissingExtra("transformers", "huggingface")
    stages = _StageLog(log, time.monotonic() - seconds_spent)
    text, data = _prepare(output, stages)
    pretrained = _pretrain(output, data, minutes, stages)
    task = _score_task(output, held_out_documents(text), stages)
    model, tokenizer = load_model(pretrained.folder)
    with stages.timed("export") as facts:
        export = export_huggingface(model, tokenizer, output / "huggingface", verify=True)
        assert export.max_difference is not None, "verify=True computes it"
        facts.append(f"{export.architecture}, read back by Transformers: the same outputs")
    stages.log("")
    stages.log(_fill_mask_example(TextModel(model, tokenizer)))
    result = QuickstartResult(
        round(stages.seconds, 1),
        pretrained.metrics["masked_loss"],
        pretrained.metrics["unigram_entropy"],
        pretrained.metrics["masked_accuracy"],
        pretrained.metrics["most_frequent_accuracy"],
        task,
        export.max_difference,
    )
    for line in ["", *result.table(), "", _provenance(result.seconds)]:
        stages.log(line)
    metrics_file = pretrained.folder / "metrics.jsonl"
    plot_quickstart(metrics_file, result.as_dict(), output / "quickstart.png")
    write_text(output / "output.txt", "\n".join(stages.lines) + "\n")
    write_text(output / "result.json", json.dumps(result.as_dict(), indent=1) + "\n")
    return result


@dataclass
class _StageLog:
    """A log of the stages with their results and times."""

    output: Log
    start_time: float
    lines: list[str] = field(default_factory=list[str])

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start_time

    def log(self, line: str) -> None:
        self.lines.append(line)
        self.output(line)

    @contextmanager
    def timed(self, name: str) -> Generator[list[str]]:
        """Time a stage, and log a line with the facts that were appended to the list."""
        start = time.monotonic()
        facts: list[str] = []
        yield facts
        self.log(f"{name:<12}{time.monotonic() - start:6.1f} s  {'; '.join(facts)}")


def _prepare(output: Path, stage_log: _StageLog) -> tuple[Path, Dataset]:
    """Write the sample text as a file and as shards."""
    with stage_log.timed("sample") as facts:
        sample = write_sample_text(output / "sample")
        facts.append(f"{sample.words:,} words of documentation installed here")
    text = output / "sample" / "sample.txt"
    config = Recipe.load(RECIPE).text.tokenizer
    with stage_log.timed("tokenizer") as facts:
        tokenizer = train_tokenizer_on_files([text], output / "tokenizer", config)
        facts.append(f"{tokenizer.vocab_size:,} tokens")
    with stage_log.timed("prepare") as facts:
        data = prepare(text, output / "data", tokenizer, heldout=HELD_OUT_FRACTION)
        train, heldout = data.split("train"), data.split("heldout")
        facts.append(f"{train.num_tokens:,} tokens to train on, {heldout.num_tokens:,} held out")
    return text, data


def pretraining_seconds(minutes: float, spent: float) -> float:
    """Return the seconds of pre-training, after ``spent`` seconds of preparation.

    A machine that has been slow so far will be slow again: twice the delay is subtracted from the
    minutes, at most half of them.
    """
    late = max(0.0, spent - PREPARATION_SECONDS)
    return max(30.0 * minutes, 60.0 * minutes - 2.0 * late)


def _pretrain(
    output: Path, data: Dataset, minutes: float, stage_log: _StageLog
) -> PretrainingResult:
    budget = pretraining_seconds(minutes, stage_log.seconds)
    with stage_log.timed("pretrain") as facts:
        result = pretrain(RECIPE, data, output / "encoder", budget=budget)
        facts.append(
            f"{RECIPE}, {result.num_steps:,} steps, {result.num_tokens / 1e6:.1f} M tokens"
        )
    return result


def held_out_documents(text: Path) -> list[str]:
    """Return the texts of the documents that ``prepare`` held out."""
    counts = ReadCounts()
    sources = find_sources([text], "text", None, counts)
    documents = drop_duplicates(read_documents(sources, counts), counts)
    splits = assign_splits(documents, HELD_OUT_FRACTION)
    return [document.text for split, document in splits if split == HELDOUT]


def _score_task(output: Path, documents: Sequence[str], stage_log: _StageLog) -> QuickstartScores:
    """Return the macro F1 on documents that neither pre-training nor fine-tuning has seen."""
    training_documents, test_documents = split_documents(documents, TEST_FRACTION)
    train, dev = split_documents(training_documents, DEVELOPMENT_FRACTION, seed=1)
    training, development, test = map(restoration_examples, (train, dev, test_documents))
    task = find_task("restoration")

    def macro_f1(predictions: Sequence[Prediction]) -> float:
        return task.score(test, predictions)["macro-f1"]

    words = WordTagBaseline.fit(training)

    def score_encoder(model: TextModel, folder: Path | None) -> float:
        result = finetune(
            model, task, train=training, dev=development, output=folder, **FINE_TUNING
        )
        return macro_f1(result.model.predict(_without_tags(test)))

    model, tokenizer = load_model(output / "encoder")
    with stage_log.timed("fine-tune") as facts:
        score = score_encoder(TextModel(model, tokenizer), output / "restoration")
        facts.append(f"macro F1 {score:.3f}")
        facts.append(f"{_num_words(training):,} words to train on, {_num_words(test):,} to test")
    with stage_log.timed("untrained") as facts:
        untrained = score_encoder(_untrained_model(model.recipe, tokenizer), None)
        facts.append(f"macro F1 {untrained:.3f}")
        facts.append("the same encoder without pre-training")
    return QuickstartScores(
        "restoration",
        score,
        macro_f1(replace(words, tags={}).predict(test)),
        macro_f1(words.predict(test)),
        untrained,
    )


def _untrained_model(recipe: Recipe, tokenizer: Tokenizer) -> TextModel:
    return TextModel(Model.build(recipe, tokenizer.vocab_size, tokenizer), tokenizer)


def _without_tags(examples: Sequence[TaggedSentence]) -> list[TaggedSentence]:
    return [TaggedSentence(example.words) for example in examples]


def _num_words(examples: Sequence[TaggedSentence]) -> int:
    return sum(len(example.words) for example in examples)


def _fill_mask_example(model: TextModel) -> str:
    predictions = model.fill_mask(MASKED_SENTENCE)[0]
    listed = ", ".join(f"{p.token} {p.probability:.0%}" for p in predictions)
    return f"{MASKED_SENTENCE}\n  {listed}"


def _provenance(seconds: float) -> str:
    libraries = ", ".join(f"{name} {number}" for name, number in package_versions("torch").items())
    return f"{seconds / 60:.1f} minutes on {hardware_description()}; {libraries}"
