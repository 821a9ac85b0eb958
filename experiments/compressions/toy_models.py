"""The toy models of all checks: a synthetic language, a pre-trained encoder, and fine-tuned models.

They are trained once, and read by every check.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Literal

from bertwright.compression.compress import CompressionResult, compress
from bertwright.core.files import write_text
from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import TokenizerConfig, WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer_on_files
from bertwright.models.saving import load_model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.studies.corpora import CorpusFolder
from bertwright.tasks.catalogue import find_split_file, table_task, tagging_task
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.fine_tuned_model import FineTunedModel, load_fine_tuned_model
from bertwright.tasks.finetuning.build_run import TaskDistillation
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.formats.tables import Columns
from bertwright.training.distillation_loss import PretrainingDistillation
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.pretraining.run import PretrainingResult
from experiments.compressions.village import VillageCorpus

SplitName = Literal["train", "dev"]

TAGGING_METRICS = ("accuracy", "macro-f1")

TASKS = {
    "sentiment": table_task("sentiment", Columns()),
    "majority": table_task("majority", Columns()),
    "inference": table_task("inference", Columns(pair="pair")),
    "roles": tagging_task("roles", metrics=TAGGING_METRICS),
}
"""Tasks of texts, of pairs and of words."""

SECOND_LANGUAGE = "-de"
"""The suffix of tasks in the language with little text."""

ENCODER = (
    "encoder.width=64",
    "encoder.depth.layers=4",
    "encoder.mixer.head_width=16",
    "encoder.positions.size=64",
    "encoder.norm.placement=pre",
    "encoder.dropout=0",
    "encoder.mixer.dropout=0",
    "encoder.initialisation={kind: width-aware}",
    "objectives.next-sentence=null",
    "objectives.masked={selection: {masking_rate: 0.3}, corruption: {when: dynamic}}",
    "phases=[{fraction: 1}]",
    "assembly.length=32",
    "optimiser={kind: muon, matrix_learning_rate: 0.02, learning_rate: 5e-3, beta_2: 0.98, "
    "epsilon: 1e-6}",
    "schedule.warmup=0.1",
    "batch_tokens=1024",
    "precision=float32",
    "compile=false",
)
"""Changes to ``bert``: the size of the toy, and settings that train it in a minute."""

VOCABULARY, LENGTH = 500, 32

FINE_TUNING: Mapping[str, Any] = {
    "max_length": LENGTH,
    "batch_size": 16,
    "learning_rate": 1.5e-3,
    "dropout": 0.0,
    "calibrate": False,
    "compile": False,
    "precision": "float32",
}
"""Settings of all fine-tuning runs except the epochs."""


def pruning_settings(kind: str, density: float, dense_fraction: float = 0) -> dict[str, Any]:
    """Return an adaptation that is dense for a fraction of the time, then ever sparser.

    The final density holds for the last quarter of the remaining time.
    """
    falling = {"kind": "cubic", "from": 1.0, "to": density}
    parts = [{"fraction": 3, "value": falling}, {"fraction": 1, "value": density}]
    if dense_fraction:
        parts.insert(0, {"fraction": 4 * dense_fraction / (1 - dense_fraction), "value": 1.0})
    return {"kind": kind, "density": {"kind": "parts", "parts": parts}}


@dataclass(frozen=True)
class ToySize:
    """The sizes of everything.

    Attributes:
        examples: labelled examples of students; ``few_examples`` of them if labels are scarce, with
            ten times as many unlabelled ones.
        teacher_examples: the training examples of teachers.
        evaluation_examples: the examples of all evaluations.
    """

    documents: int
    teacher_steps: int
    steps: int
    seeds: int
    epochs: int
    examples: int
    few_examples: int
    teacher_examples: int
    evaluation_examples: int


FULL_SIZE = ToySize(4_000, 1_200, 400, 5, 6, 500, 60, 2_000, 500)
QUICK_SIZE = ToySize(400, 20, 6, 2, 1, 32, 8, 64, 48)


@dataclass(frozen=True)
class ToyModels:
    """A folder with toy models."""

    folder: Path
    is_quick: bool = False

    @property
    def size(self) -> ToySize:
        """The sizes of everything."""
        return QUICK_SIZE if self.is_quick else FULL_SIZE

    @property
    def seeds(self) -> range:
        """The seeds of measured values."""
        return range(self.size.seeds)

    @property
    def data(self) -> Dataset:
        """The prepared text."""
        return Dataset.open(self.folder / "data")

    @property
    def pretrained(self) -> TextModel:
        """The pre-trained encoder of four blocks."""
        return TextModel(*load_model(self.folder / "pretrained"), "float32")

    def fine_tuned(self, task: str) -> FineTunedModel:
        """Return the encoder fine-tuned for a task."""
        return load_fine_tuned_model(self.folder / task, "float32")

    def recipe(
        self, *changes: str, steps: int | None = None, seed: int = 0, system: str = "bert"
    ) -> Recipe:
        """Return the recipe of the encoder, or of another system of its size, with changes."""
        steps = steps or self.size.steps
        run = (f"steps={steps}", f"evaluate_every={steps}", f"seed={seed}")
        return Recipe.load(system, *ENCODER, *run, *changes)

    def pretrain(
        self,
        name: str,
        recipe: Recipe | None,
        start_from: Path | None = None,
        distillation: PretrainingDistillation | None = None,
        data: Dataset | None = None,
    ) -> PretrainingResult:
        """Pre-train a recipe in a folder of this name; None resumes the run there.

        The default is the toy's data.
        """
        # Quick runs warn that nothing was learned.
        with redirect_stderr(StringIO()):
            return pretrain(
                recipe,
                data or self.data,
                self.folder / name,
                resume=recipe is None,
                start_from=start_from,
                distillation=distillation,
                quiet=True,
            )

    def retokenize(self, name: str, config: TokenizerConfig) -> Dataset:
        """Prepare the text with another tokenizer, in a folder of this name."""
        corpus_folder = CorpusFolder(self.folder / "corpus")
        inputs = VillageCorpus().inputs(corpus_folder)
        tokenizer = train_tokenizer_on_files(inputs, self.folder / f"{name}-tokenizer", config)
        return prepare(inputs, self.folder / name, tokenizer, num_workers=1)

    def examples(self, task: str, part: SplitName = "train", language: str = "") -> Examples:
        """Return all examples of a split of a task, in a language."""
        folder = CorpusFolder(self.folder / "corpus").task(task + language)
        return TASKS[task].read_examples(find_split_file(folder, part))

    def task_data(self, task: str, max_examples: int | None = None) -> TaskData:
        """Return a task with labelled examples, at most ``max_examples``, and evaluation ones."""
        train = self.examples(task)[: max_examples or self.size.examples]
        return TaskData(TASKS[task], train=train, dev=self.evaluation_examples(task))

    def evaluation_examples(self, task: str, language: str = "") -> Examples:
        """Return the examples of evaluations."""
        return self.examples(task, "dev", language)[: self.size.evaluation_examples]

    def unlabelled(self, task: str, language: str = "") -> Examples:
        """Return ten times as many examples as the few labelled ones, to be used without labels."""
        few = self.size.few_examples
        return self.examples(task, language=language)[few : 11 * few]

    def write_method(self, name: str, settings: Mapping[str, Any]) -> str:
        """Write a method file; return its path."""
        return self.write_yaml(name, {"description": name, "source": "a check", **settings})

    def write_yaml(self, name: str, settings: Mapping[str, Any]) -> str:
        """Write a method or a recipe file; return its path."""
        file = self.folder / f"{name}.yaml"
        write_text(file, json.dumps(settings))
        return str(file)

    def finetune(
        self,
        model: TextModel,
        task: str,
        seed: int = 0,
        distillation: TaskDistillation | None = None,
        output: Path | None = None,
        **settings: Any,
    ) -> FineTuningResult:
        """Fine-tune a model for a task on the labelled examples."""
        return finetune(
            model,
            TASKS[task],
            train=self.examples(task)[: self.size.examples],
            dev=self.evaluation_examples(task),
            distillation=distillation,
            output=output,
            **self.settings(seed, **settings),
        )

    def compress(
        self,
        teacher: FineTunedModel,
        method: str,
        seeds: Sequence[int] | None = None,
        *,
        task_data: TaskData | None = None,
        student: TextModel | str | None = None,
        layers: int | None = None,
        unlabelled: Examples | None = None,
        augmenter: TextModel | None = None,
        with_baseline: bool = False,
    ) -> CompressionResult:
        """Compress a fine-tuned model by a method, under these seeds or all."""
        seeds = self.seeds if seeds is None else seeds
        return compress(
            teacher,
            method,
            task_data or self.task_data(teacher.task.name),
            student=student,
            layers=layers,
            unlabelled=unlabelled,
            augmenter=augmenter,
            seeds=len(seeds),
            with_baseline=with_baseline,
            settings=self.settings(seeds[0]),
        )

    def settings(self, seed: int = 0, **changes: Any) -> dict[str, Any]:
        """Return fine-tuning settings."""
        return {**FINE_TUNING, "epochs": self.size.epochs, "seed": seed, **changes}


def train_toy_models(folder: Path, is_quick: bool) -> ToyModels:
    """Write the text, pre-train the encoder, fine-tune it for every task."""
    toy = ToyModels(folder, is_quick)
    size = toy.size
    corpus = VillageCorpus(documents=size.documents, second_documents=size.documents // 8)
    corpus.write(CorpusFolder(folder / "corpus"))
    toy.retokenize("data", WordPieceConfig(vocab_size=VOCABULARY))
    toy.pretrain("pretrained", toy.recipe(steps=size.teacher_steps))
    for name, task in TASKS.items():
        train = toy.examples(name)[-size.teacher_examples :]
        if name == "roles":
            second = toy.examples(name, language=SECOND_LANGUAGE)
            train = [*train, *second[-size.teacher_examples // 8 :]]
        finetune(
            toy.pretrained,
            task,
            train=train,
            dev=toy.evaluation_examples(name),
            output=folder / name,
            **toy.settings(),
        )
    return toy
