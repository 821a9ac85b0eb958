"""A fine-tuned model with its tokenizer and its task: texts in, answers out; and its folder.

Beside what every model folder holds, ``task.json`` says what the outputs mean.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from pydantic import Field, ValidationError
from torch import Tensor

from bertwright.axes import ReadingPrecision, Settings, explain
from bertwright.errors import UserError
from bertwright.files import parse_json, read_text, write_text
from bertwright.model.finite import require_numbers
from bertwright.model.folder import (
    CARD,
    RECIPE,
    TRAINING,
    WEIGHTS,
    fill,
    load_recipe,
    num_pieces,
    read_tensors,
    save_weights,
)
from bertwright.model.model import Model
from bertwright.model.reading import ReadBatch, read_batches
from bertwright.model.text_model import TextModel
from bertwright.recipes import Pooling, Vectors
from bertwright.tasks.adaptation import Adaptation
from bertwright.tasks.answers import Answer, Floats, Prediction
from bertwright.tasks.encoding import RowMaker, TaskRow, documents_of
from bertwright.tasks.formats.examples import (
    AnyExample,
    Example,
    Examples,
    Options,
    Question,
    TaggedWords,
)
from bertwright.tasks.heads import Head, HeadChoice, shapes_of
from bertwright.tasks.task import StoredTask, Task, described
from bertwright.tasks.task_model import HeadPlan, TaskModel
from bertwright.text.tokenizers import Tokenizer

TASK = "task.json"

Asked = Examples | Sequence[str] | Sequence[tuple[str, str]]


class FineTuned(TextModel):
    """A model that solves a task: what a :class:`TextModel` does, and ``predict``.

    It has no output over the vocabulary: ``fill_mask`` and ``score`` are for the model before.
    ``length`` is the longest row; None takes what the encoder allows, 512 at most. ``temperature``
    divides what becomes probabilities. ``folder`` is where it was read from, if it was. Trained for
    closeness, it is embedded by the vectors that it was trained to give.
    """

    folder: Path | None = None

    def __init__(
        self,
        net: TaskModel,
        tokenizer: Tokenizer,
        task: Task,
        length: int | None = None,
        precision: ReadingPrecision | None = None,
        temperature: float = 1.0,
    ) -> None:
        apart = net.choice.read == "apart"
        self.maker = RowMaker.of(net.recipe, tokenizer, net.encoder.longest, length, apart)
        vectors = vectors_of(task.answer, net.choice, self.maker.length) or net.recipe.vectors
        super().__init__(_without_heads(net, vectors), tokenizer, precision)
        self.net = net.to(self.device).eval()
        self.task = task
        self.temperature = temperature
        self.answering = task.answer.build(task.labels, temperature)

    def knows(self, task: Task, head: Head) -> bool:
        """Whether it has learned this task, with such a head."""
        return (task.name, type(task.answer), task.labels, head.choice) == (
            self.task.name,
            type(self.task.answer),
            self.task.labels,
            self.net.choice,
        ) and shapes_of(head) == shapes_of(self.net.head)

    def settle(self, examples: Examples) -> Mapping[str, float]:
        """Answer from now on as held-out examples want it: with their temperature, their threshold.
        What was found; nothing where the answer has neither."""
        rows = self.answering.rows(self.maker, examples)
        answer = self.task.answer
        settled = answer.settled(self.answering, rows, lambda: self.outputs(rows), examples)
        if settled is None:
            return {}
        self.task, self.temperature = replace(self.task, answer=settled.answer), settled.temperature
        self.answering = settled.answer.build(self.task.labels, settled.temperature)
        return settled.figures

    def predict(self, asked: Asked) -> list[Prediction]:
        """The answers to examples, or to plain texts and pairs of them, in their order.

        Texts are tokenised, cut to length and batched by length; neither the order nor the
        neighbours change an answer beyond rounding.
        """
        examples = as_examples(asked, self.task)
        rows = self.answering.rows(self.maker, examples)
        return self.answering.predictions(rows, self.outputs(rows), examples)

    def outputs(self, rows: Sequence[TaskRow]) -> list[Floats]:
        """What the head says of each row, in their order: (k, K) float32 each."""
        width = self.net.plan.num_outputs
        found: list[Floats] = [np.empty((0, width), np.float32)] * len(rows)
        for numbers, outputs in self._by_row(rows, self.answered):
            for number, output in zip(numbers, outputs, strict=True):
                found[number] = output
        return found

    def features(self, examples: Examples) -> list[Floats]:
        """Return what the head reads of each example, whatever its parameters: (k, W) float32."""
        rows = self.answering.rows(self.maker, examples)
        found: list[list[Floats]] = [[np.empty(0, np.float32)] for _ in rows]
        for numbers, features in self._by_row(rows, self._features):
            for number, own in zip(numbers, features, strict=True):
                found[number] = [own]
        by_example: list[list[Floats]] = [[] for _ in examples]
        for row, own in zip(rows, found, strict=True):
            by_example[row.example] += own
        return [np.concatenate(own) for own in by_example]

    def _features(self, batch: ReadBatch, where: Tensor | None, sizes: Sequence[int]) -> Tensor:
        head, document = self.net.head, batch.coordinates.document
        wanted = head.places(batch.pieces, document, where)
        return head.read(self.states(head.layers, batch, wanted).float(), document)

    @torch.inference_mode()
    def _by_row(
        self,
        rows: Sequence[TaskRow],
        of: Callable[[ReadBatch, Tensor | None, Sequence[int]], Tensor],
    ) -> Iterator[tuple[list[int], list[Floats]]]:
        """Give what ``of`` makes of batches, (k, K) of each row, with the numbers of the rows."""
        pieces = [row.pieces for row in rows]
        segments = [row.segments or [] for row in rows] if self.maker.segmented else None
        places = self.task.answer.reads == "places"
        pad, budget, apart = self.tokenizer.specials.pad, self.token_budget, documents_of(rows)
        for batch in read_batches(pieces, pad, self.device, segments, budget, apart):
            numbers: list[int] = batch.numbers.tolist()
            own = [rows[n] for n in numbers]
            where = flat_places(own, batch.pieces.shape[1]).to(self.device) if places else None
            sizes = [self.answering.num_answers(row) for row in own]
            found = require_numbers(of(batch, where, sizes).cpu()).numpy()
            yield numbers, np.split(found, np.cumsum(sizes)[:-1])

    def answered(self, batch: ReadBatch, where: Tensor | None, sizes: Sequence[int]) -> Tensor:
        """What the head says of a batch: (B, K) float32, or (M, K) of the flat places ``where``
        (M,), of which every row has so many."""
        head, document = self.net.head, batch.coordinates.document
        wanted = head.places(batch.pieces, document, where)
        states = self.states(head.layers, batch, wanted).float()
        return head(states, document, sizes)

    def save(self, folder: str | Path, training: Mapping[str, Any] | None = None) -> None:
        """Write the model folder; its weights come last, so a new folder with weights is whole."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.tokenizer.save(folder)
        write_text(folder / RECIPE, self.net.recipe.as_yaml())
        write_text(folder / TASK, self.told())
        write_text(folder / TRAINING, json.dumps(dict(training or {}), indent=2) + "\n")
        write_text(folder / CARD, _card(self, training or {}))
        save_weights(folder / WEIGHTS, self.net, self.net.grids)

    def told(self) -> str:
        """What ``task.json`` holds: what the outputs mean, and how they come about."""
        about = {
            "task": described(self.task),
            "head": self.net.choice.model_dump(mode="json"),
            "adaptation": self.net.adaptation.model_dump(mode="json"),
            "length": self.maker.length,
            "temperature": self.temperature,
        }
        return json.dumps(about, indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Told:
    """What ``task.json`` says of a fine-tuned model."""

    task: Task
    plan: HeadPlan
    adaptation: Adaptation
    length: int
    temperature: float


def network_of(model: TextModel) -> Model | TaskModel:
    """All that a model computes with: of a fine-tuned one with its head."""
    return model.net if isinstance(model, FineTuned) else model.model


def is_fine_tuned(folder: Path) -> bool:
    """Whether a folder holds a fine-tuned model."""
    return (folder / TASK).is_file()


def load_fine_tuned(folder: Path, precision: ReadingPrecision | None = None) -> FineTuned:
    """Read the folder of a fine-tuned model.

    Errors: UserError for a folder that is missing, cut short, or holds other parameters.
    """
    if not is_fine_tuned(folder):
        raise UserError(f"{folder} is no fine-tuned model: it has no {TASK}: run finetune first")
    told = read_told(folder)
    tokenizer = Tokenizer.load(folder)
    tensors = read_tensors(folder / WEIGHTS)
    size = num_pieces(tensors, tokenizer, str(folder))
    recipe = load_recipe(folder)
    with torch.device("meta"):
        net = TaskModel(recipe, size, told.plan, told.adaptation)
    fill(net, tensors, str(folder / WEIGHTS))
    model = FineTuned(net, tokenizer, told.task, told.length, precision, told.temperature)
    model.folder = folder
    return model


def read_told(folder: Path) -> Told:
    """What a folder says of its task; UserError where that is damaged."""
    file = folder / TASK
    about = parse_json(read_text(file), str(file), "copy it again")
    try:
        stored = _Stored.model_validate(about)
    except ValidationError as error:
        raise explain(error, f"{file} is damaged or of another version") from error
    task = stored.task.task()
    plan = HeadPlan(stored.head, num_outputs(task), task.answer.name)
    return Told(task, plan, stored.adaptation, stored.length, stored.temperature)


class _Stored(Settings):
    """The content of task.json, as :meth:`FineTuned.told` writes it."""

    task: StoredTask
    head: HeadChoice
    adaptation: Adaptation
    length: int = Field(ge=1, le=1 << 20)
    temperature: float = Field(ge=1e-6, le=1e6)


def num_outputs(task: Task) -> int:
    """The outputs that a head needs for a task whose labels are known."""
    return task.answer.build(task.labels).num_outputs


def as_examples(asked: Asked, task: Task) -> Examples:
    """Plain texts as examples of a task: words are what white space sets apart."""
    if not asked or isinstance(asked[0], AnyExample):
        return cast(Examples, asked)
    texts = cast(Sequence[str | tuple[str, str]], asked)
    if TaggedWords in task.answer.shapes():
        return [TaggedWords(tuple(str(text).split())) for text in texts]
    if Question in task.answer.shapes():
        return [Question(*_pair(text, "a question and its text")) for text in texts]
    if Options in task.answer.shapes():
        raise UserError(f"task {task.name} asks for one of some options: give bertwright.Options")
    return [Example(text) if isinstance(text, str) else Example(*text) for text in texts]


def _pair(text: str | tuple[str, str], what: str) -> tuple[str, str]:
    if isinstance(text, str):
        raise UserError(f"a pair is asked for, {what}: {text[:40]!r} is one text")
    return text


def flat_places(rows: Sequence[TaskRow], length: int) -> Tensor:
    """Where the words of a batch of rows begin, as flat places (M,) int64."""
    return torch.tensor(
        [length * number + place for number, row in enumerate(rows) for place in row.places],
        dtype=torch.int64,
    )


BARE = {"objectives": {}, "pooler": False, "decoder": None}
"""What leaves of a recipe the encoder alone."""


POOLINGS: dict[str, Pooling] = {"mean": "mean", "first": "cls"}
"""What a head reads that gives a vector, in the words of ``embed``."""


def vectors_of(answer: Answer, choice: HeadChoice, longest: int) -> Vectors | None:
    """The vectors that an encoder was fine-tuned to give; None where it was for none, or for such
    as ``embed`` does not make."""
    if answer.own_kind() != "closeness" or choice.layers != "last" or choice.read not in POOLINGS:
        return None
    return Vectors(pooling=POOLINGS[choice.read], longest=longest)


def _without_heads(net: TaskModel, vectors: Vectors) -> Model:
    """The encoder of a task's model as a model of its own, the parameters shared."""
    with torch.device("meta"):
        bare = net.recipe.model_copy(update={**BARE, "vectors": vectors})
        model = Model(bare, net.vocabulary_size)
    model.encoder = net.encoder
    return model


def _is_short(value: Any) -> bool:
    """Return whether a line of a card can say it."""
    nested = isinstance(value, list) and any(isinstance(each, dict | str) for each in value)
    return not isinstance(value, dict) and not nested


def _card(model: FineTuned, training: Mapping[str, Any]) -> str:
    """The README.md of a fine-tuned model."""
    task = model.task
    lines = [
        f"# {model.net.recipe.name}, fine-tuned for {task.name}",
        "",
        f"An encoder fine-tuned with bertwright. Answers with a {task.answer.name}"
        + (f" of {len(task.labels)}." if task.labels else "."),
        "",
        *(f"- {name}: {value}" for name, value in training.items() if _is_short(value)),
        "",
        "```python",
        "import bertwright as bw",
        "",
        'model = bw.load("this folder")',
        'answers = model.predict(["A text."])',
        "```",
    ]
    return "\n".join(lines) + "\n"
