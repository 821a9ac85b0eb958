"""The ground on which all rows are checked: a language, an encoder that has read it, and models
that have learned its tasks. They are made once, and read by every row."""

import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Literal

from bertwright.compression.compressing import Compressed, compress
from bertwright.files import write_text
from bertwright.model.folder import load_model
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.studies.corpora import Village, Written
from bertwright.tasks.catalogue import find_part, table_task, tagging_task
from bertwright.tasks.data import TaskData
from bertwright.tasks.fine_tuned import FineTuned, load_fine_tuned
from bertwright.tasks.finetuning import FineTuneResult, finetune
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.teaching import Teacher
from bertwright.text.preparation import prepare
from bertwright.text.shards import Data
from bertwright.text.tokenizers import TokenizerChoice, WordPieceChoice
from bertwright.text.vocabularies import train_on_files
from bertwright.training.pretraining import pretrain
from bertwright.training.pretraining_run import Pretrained
from bertwright.training.teaching import PieceTeacher

Part = Literal["train", "dev"]

EVERY_WORD = ("accuracy", "macro-f1")

TASKS = {
    "sentiment": table_task("sentiment", Columns()),
    "inference": table_task("inference", Columns(second="pair")),
    "roles": tagging_task("roles", metrics=EVERY_WORD),
}
"""One of texts, one of pairs, one of words."""

SECOND = "-de"
"""The language in which there is little."""

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
    "objectives.masked={selection: {rate: 0.3}, corruption: {when: dynamic}}",
    "phases=[{share: 1}]",
    "assembly.length=32",
    "optimiser={kind: muon, matrix_rate: 0.02, rate: 5e-3, beta_2: 0.98, epsilon: 1e-6}",
    "schedule.warmup=0.1",
    "batch_tokens=1024",
    "precision=float32",
    "compile=false",
)
"""Changes to ``bert``: the sizes of the toy, and what makes it learn in a minute."""

VOCABULARY, LENGTH = 500, 32

FINE_TUNING: Mapping[str, Any] = {
    "length": LENGTH,
    "batch": 16,
    "rate": 1.5e-3,
    "dropout": 0.0,
    "calibrate": False,
    "compile": False,
    "precision": "float32",
}
"""Settings of all fine-tuning but how long it takes."""


def pruned(kind: str, kept: float, held: float = 0) -> dict[str, Any]:
    """An adaptation that keeps all weights for a share ``held`` of the time, then ever fewer, and
    so many for the last quarter of what is left of it."""
    going = {"kind": "cubic", "from": 1.0, "to": kept}
    parts = [{"share": 3, "value": going}, {"share": 1, "value": kept}]
    if held:
        parts.insert(0, {"share": 4 * held / (1 - held), "value": 1.0})
    return {"kind": kind, "kept": {"kind": "parts", "parts": parts}}


@dataclass(frozen=True)
class Size:
    """How much there is of everything.

    Attributes:
        examples: labelled ones, from which students learn; ``few`` of them where labels are dear,
            and ten times as many others that have none.
        taught: from so many the teachers have learned.
        judge: by so many all are judged.
    """

    documents: int
    teacher_steps: int
    steps: int
    seeds: int
    epochs: int
    examples: int
    few: int
    taught: int
    judge: int


WHOLE = Size(4_000, 1_200, 400, 5, 6, 500, 60, 2_000, 500)
QUICK = Size(400, 20, 6, 2, 1, 32, 8, 64, 48)


@dataclass(frozen=True)
class Ground:
    """A folder with all of it, as large as ``size`` says."""

    folder: Path
    quick: bool = False

    @property
    def size(self) -> Size:
        """How much there is of everything."""
        return QUICK if self.quick else WHOLE

    @property
    def seeds(self) -> range:
        """Those under which figures are found."""
        return range(self.size.seeds)

    @property
    def data(self) -> Data:
        """The prepared text."""
        return Data.open(self.folder / "data")

    @property
    def pretrained(self) -> TextModel:
        """The encoder of four blocks that has read the text."""
        return TextModel(*load_model(self.folder / "pretrained"), "float32")

    def tuned(self, task: str) -> FineTuned:
        """The same, behind one of the tasks."""
        return load_fine_tuned(self.folder / task, "float32")

    def recipe(
        self, *changes: str, steps: int | None = None, seed: int = 0, system: str = "bert"
    ) -> Recipe:
        """That of the encoder, or of another system of its size, with changes."""
        steps = steps or self.size.steps
        run = (f"steps={steps}", f"evaluate_every={steps}", f"seed={seed}")
        return Recipe.load(system, *ENCODER, *run, *changes)

    def learned(
        self,
        name: str,
        recipe: Recipe | None,
        start_from: Path | None = None,
        teacher: PieceTeacher | None = None,
        seconds: float | None = None,
        data: Data | None = None,
    ) -> Pretrained:
        """What a recipe makes of the text, or of other ``data``, in its steps or in so many
        seconds, in a folder of this name; without one the run that was begun there goes on."""
        # Who hardly trains is warned that nothing was learned, and nobody else is.
        with redirect_stderr(StringIO()):
            return pretrain(
                recipe,
                data or self.data,
                self.folder / name,
                budget=seconds,
                resume=recipe is None,
                start_from=start_from,
                teacher=teacher,
                quiet=True,
            )

    def cut(self, name: str, choice: TokenizerChoice) -> Data:
        """The text in the pieces of another tokenizer, in a folder of this name."""
        written = Written(self.folder / "corpus")
        inputs = Village().inputs(written)
        tokenizer = train_on_files(inputs, self.folder / f"{name}-tokenizer", choice)
        return prepare(inputs, self.folder / name, tokenizer, num_workers=1)

    def examples(self, task: str, part: Part = "train", language: str = "") -> Examples:
        """All that there are of a part of a task, in a language."""
        folder = Written(self.folder / "corpus").task(task + language)
        return TASKS[task].read(find_part(folder, part))

    def given(self, task: str, most: int | None = None) -> TaskData:
        """A task with its labelled examples, or the first of them, and those that judge."""
        train = self.examples(task)[: most or self.size.examples]
        return TaskData(TASKS[task], train=train, dev=self.judge(task))

    def judge(self, task: str, language: str = "") -> Examples:
        """The examples by which all are judged."""
        return self.examples(task, "dev", language)[: self.size.judge]

    def unlabelled(self, task: str, language: str = "") -> Examples:
        """Ten times as many as a few, whose labels nobody may look at."""
        few = self.size.few
        return self.examples(task, language=language)[few : 11 * few]

    def method(self, name: str, stated: Mapping[str, Any]) -> str:
        """The file of a method of one's own."""
        return self.file(name, {"about": name, "source": "a check", **stated})

    def file(self, name: str, stated: Mapping[str, Any]) -> str:
        """A file that says so, of a method or of a recipe."""
        file = self.folder / f"{name}.yaml"
        write_text(file, json.dumps(stated))
        return str(file)

    def finetuned(
        self,
        model: TextModel,
        task: str,
        seed: int = 0,
        teacher: Teacher | None = None,
        out: Path | None = None,
        **settings: Any,
    ) -> FineTuneResult:
        """A model behind a task that it has learned from the labelled examples."""
        train, told = self.examples(task)[: self.size.examples], self.settings(seed, **settings)
        return finetune(
            model, TASKS[task], train=train, dev=self.judge(task), teacher=teacher, out=out, **told
        )

    def compressed(
        self,
        teacher: FineTuned,
        method: str,
        seeds: Sequence[int] | None = None,
        *,
        given: TaskData | None = None,
        student: TextModel | str | None = None,
        layers: int | None = None,
        transfer: Examples | None = None,
        namer: TextModel | None = None,
        alone: bool = False,
    ) -> Compressed:
        """What a method makes of a model of a task, under these seeds or under all."""
        seeds = self.seeds if seeds is None else seeds
        return compress(
            teacher,
            method,
            given or self.given(teacher.task.name),
            student=student,
            layers=layers,
            transfer=transfer,
            namer=namer,
            seeds=len(seeds),
            alone=alone,
            settings=self.settings(seeds[0]),
        )

    def settings(self, seed: int = 0, **more: Any) -> dict[str, Any]:
        """Of fine-tuning."""
        return {**FINE_TUNING, "epochs": self.size.epochs, "seed": seed, **more}


def made(folder: Path, quick: bool) -> Ground:
    """Write the text, train the encoder, fine-tune it for every task."""
    ground = Ground(folder, quick)
    size, written = ground.size, Written(folder / "corpus")
    corpus = Village(documents=size.documents, second=size.documents // 8)
    corpus.write(written)
    ground.cut("data", WordPieceChoice(size=VOCABULARY))
    ground.learned("pretrained", ground.recipe(steps=size.teacher_steps))
    for name, task in TASKS.items():
        train = ground.examples(name)[-size.taught :]
        if name == "roles":
            train = [*train, *ground.examples(name, language=SECOND)[-size.taught // 8 :]]
        out, settings = folder / name, ground.settings()
        finetune(ground.pretrained, task, train=train, dev=ground.judge(name), out=out, **settings)
    return ground
