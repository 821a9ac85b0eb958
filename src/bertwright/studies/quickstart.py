"""The quickstart: the whole path once, from text that is already there to a folder others load.

The text is the embedded sample. Nine in a hundred of its documents are held out from pre-training;
on them the encoder is judged, and from them the task is made that it is fine-tuned for: restoring
punctuation and capitals. So everything that the task shows and asks is new to the encoder. The same
task is learned by the same encoder untrained, and answered without looking at the words around.
"""

import json
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bertwright.errors import MissingExtra
from bertwright.files import require_free, write_text
from bertwright.interop.huggingface import export_folder
from bertwright.machine.description import description, versions
from bertwright.model.folder import load_model
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.studies.quickstart_picture import draw_quickstart
from bertwright.tasks.answers import Prediction
from bertwright.tasks.baselines import majority_tag, tag_of_word
from bertwright.tasks.catalogue import find_task
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.examples import TaggedWords
from bertwright.tasks.restoration import restoration_examples, split_documents
from bertwright.text.documents import ReadCounts
from bertwright.text.duplicates import unseen
from bertwright.text.preparation import prepare
from bertwright.text.readers import read_documents
from bertwright.text.sample import gather_sample
from bertwright.text.shards import Data
from bertwright.text.sources import find_sources
from bertwright.text.splitting import HELDOUT, assign_splits
from bertwright.text.tokenizers import Tokenizer
from bertwright.text.vocabularies import train_on_files
from bertwright.training.pretraining import pretrain
from bertwright.training.pretraining_run import Pretrained

RECIPE = "modern-tiny"
"""In minutes a small model learns more than a large one."""

HELD_OUT_SHARE = 0.09
TEST_SHARE, DEVELOPMENT_SHARE = 0.25, 0.1
"""Of the held-out documents, and of those that are left for training on the task."""

FINE_TUNING: dict[str, Any] = {"epochs": 4, "rate": 1e-3, "batch": 16}
"""Of both encoders; the rate is the one of those tried at which the untrained encoder does best."""

PREPARATION_SECONDS = 60.0
"""What comes before pre-training, on 2 cores that are not slow."""

HIDDEN = "This function returns the [MASK] of elements in the list."

Say = Callable[[str], None]


@dataclass(frozen=True)
class TaskScores:
    """Macro F1 on the test documents, of the fine-tuned encoder and of what it has to beat."""

    name: str
    score: float
    majority: float
    words_alone: float
    untrained: float


@dataclass(frozen=True)
class Found:
    """What the quickstart shows; losses in nats for a hidden piece of held-out text."""

    seconds: float
    heldout_loss: float
    unigram_entropy: float
    masked_accuracy: float
    most_frequent_accuracy: float
    task: TaskScores
    export_max_difference: float

    def as_dict(self) -> dict[str, Any]:
        """What ``result.json`` says."""
        return {**vars(self), "task": vars(self.task)}

    def table(self) -> list[str]:
        """The same in lines, every figure above those it is compared with."""
        task = self.task
        rows = [
            ("held-out masked loss, nats", f"{self.heldout_loss:.3f}"),
            ("  unigram entropy", f"{self.unigram_entropy:.3f}"),
            ("hidden pieces named right", f"{self.masked_accuracy:.1%}"),
            ("  always the most frequent", f"{self.most_frequent_accuracy:.1%}"),
            ("punctuation and capitals restored, macro F1", f"{task.score:.3f}"),
            ("  the same encoder, untrained", f"{task.untrained:.3f}"),
            ("  each word's most frequent tag", f"{task.words_alone:.3f}"),
            ("  the most frequent tag", f"{task.majority:.3f}"),
            ("difference to Transformers, at most", f"{self.export_max_difference:.1e}"),
        ]
        return [f"{name:<44}{figure:>8}" for name, figure in rows]


def quickstart(
    out: Path, minutes: float = 5.0, say: Say = print, seconds_spent: float = 0.0
) -> Found:
    """Run everything, and leave it all in the folder ``out``.

    ``minutes`` are those of pre-training; the rest takes another one or two. ``say`` is given a
    line at the end of every stage, then the table; ``seconds_spent`` passed before the call.

    Errors: UserError where ``out`` holds something; MissingExtra without Transformers.
    """
    require_free(out)
    if find_spec("transformers") is None:
        raise MissingExtra("transformers", "huggingface")
    stages = _Stages(say, time.monotonic() - seconds_spent)
    text, data = _prepared(out, stages)
    trained = _pretrained(out, data, minutes, stages)
    task = _task(out, held_out_documents(text), stages)
    model, tokenizer = load_model(trained.path)
    with stages.timed("export") as facts:
        written = export_folder(model, tokenizer, out / "huggingface", verify=True)
        assert written.max_difference is not None, "a verified export knows its difference"
        facts.append(f"{written.architecture}, read back by Transformers: the same outputs")
    stages.say("")
    stages.say(_filled(TextModel(model, tokenizer)))
    found = Found(
        round(stages.seconds, 1),
        trained.figures["masked_loss"],
        trained.figures["unigram_entropy"],
        trained.figures["masked_accuracy"],
        trained.figures["most_frequent_accuracy"],
        task,
        written.max_difference,
    )
    for line in ["", *found.table(), "", _origin(found.seconds)]:
        stages.say(line)
    draw_quickstart(trained.path / "metrics.jsonl", found.as_dict(), out / "quickstart.png")
    write_text(out / "output.txt", "\n".join(stages.said) + "\n")
    write_text(out / "result.json", json.dumps(found.as_dict(), indent=1) + "\n")
    return found


@dataclass
class _Stages:
    """Says what every stage found and how long it took, and remembers what was said."""

    tell: Say
    began: float
    said: list[str] = field(default_factory=list[str])

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.began

    def say(self, line: str) -> None:
        self.said.append(line)
        self.tell(line)

    @contextmanager
    def timed(self, name: str) -> Generator[list[str]]:
        """A stage; what is appended to the list stands in its line."""
        began = time.monotonic()
        facts: list[str] = []
        yield facts
        self.say(f"{name:<12}{time.monotonic() - began:6.1f} s  {'; '.join(facts)}")


def _prepared(out: Path, stages: _Stages) -> tuple[Path, Data]:
    """The sample text as a file and as shards."""
    with stages.timed("sample") as facts:
        sample = gather_sample(out / "sample")
        facts.append(f"{sample.words:,} words of documentation installed here")
    text = out / "sample" / "sample.txt"
    choice = Recipe.load(RECIPE).text.tokenizer
    with stages.timed("tokenizer") as facts:
        tokenizer = train_on_files([text], out / "tokenizer", choice)
        facts.append(f"{tokenizer.size:,} pieces")
    with stages.timed("prepare") as facts:
        data = prepare(text, out / "data", tokenizer, heldout=HELD_OUT_SHARE)
        train, heldout = data.split("train"), data.split("heldout")
        facts.append(f"{train.num_pieces:,} pieces to learn from, {heldout.num_pieces:,} held out")
    return text, data


def pretraining_seconds(minutes: float, spent: float) -> float:
    """How long to pre-train after ``spent`` seconds.

    A machine that was late so far will be late again: what it lost, and will lose, is taken from
    the minutes asked for, at most half of them.
    """
    late = max(0.0, spent - PREPARATION_SECONDS)
    return max(30.0 * minutes, 60.0 * minutes - 2.0 * late)


def _pretrained(out: Path, data: Data, minutes: float, stages: _Stages) -> Pretrained:
    budget = pretraining_seconds(minutes, stages.seconds)
    with stages.timed("pretrain") as facts:
        trained = pretrain(RECIPE, data, out / "encoder", budget=budget)
        facts.append(f"{RECIPE}, {trained.steps:,} steps, {trained.tokens / 1e6:.1f} M tokens")
    return trained


def held_out_documents(text: Path) -> list[str]:
    """The documents that ``prepare`` held out, as they are written."""
    met = ReadCounts()
    documents = unseen(read_documents(find_sources([text], "text", None, met), met), met)
    split = assign_splits(documents, HELD_OUT_SHARE)
    return [document.text for part, document in split if part == HELDOUT]


def _task(out: Path, documents: Sequence[str], stages: _Stages) -> TaskScores:
    """Macro F1 on documents that neither pre-training nor fine-tuning has seen."""
    learned, asked = split_documents(documents, TEST_SHARE)
    train, dev = split_documents(learned, DEVELOPMENT_SHARE, seed=1)
    training, development, test = map(restoration_examples, (train, dev, asked))
    task = find_task("restoration")

    def macro_f1(predictions: Sequence[Prediction]) -> float:
        return task.score(test, predictions)["macro-f1"]

    def of_tags(tags: Sequence[tuple[str, ...]]) -> float:
        return macro_f1([Prediction(own) for own in tags])

    def fine_tuned(model: TextModel, folder: Path | None) -> float:
        result = finetune(model, task, train=training, dev=development, out=folder, **FINE_TUNING)
        return macro_f1(result.model.predict(_bare(test)))

    model, tokenizer = load_model(out / "encoder")
    with stages.timed("fine-tune") as facts:
        score = fine_tuned(TextModel(model, tokenizer), out / "restoration")
        facts.append(f"macro F1 {score:.3f}")
        facts.append(f"{_num_words(training):,} words to learn from, {_num_words(test):,} to test")
    with stages.timed("untrained") as facts:
        untrained = fine_tuned(_untrained(model.recipe, tokenizer), None)
        facts.append(f"macro F1 {untrained:.3f}")
        facts.append("the same, from the encoder as it was before its training")
    return TaskScores(
        "restoration",
        score,
        of_tags(majority_tag(training, test)),
        of_tags(tag_of_word(training, test)),
        untrained,
    )


def _untrained(recipe: Recipe, tokenizer: Tokenizer) -> TextModel:
    return TextModel(Model.build(recipe, tokenizer.size, tokenizer), tokenizer)


def _bare(examples: Sequence[TaggedWords]) -> list[TaggedWords]:
    return [TaggedWords(example.words) for example in examples]


def _num_words(examples: Sequence[TaggedWords]) -> int:
    return sum(len(example.words) for example in examples)


def _filled(model: TextModel) -> str:
    guesses = model.fill_mask(HIDDEN)[0]
    listed = ", ".join(f"{guess.piece} {guess.probability:.0%}" for guess in guesses)
    return f"{HIDDEN}\n  {listed}"


def _origin(seconds: float) -> str:
    libraries = ", ".join(f"{name} {number}" for name, number in versions("torch").items())
    return f"{seconds / 60:.1f} minutes on {description()}; {libraries}"
