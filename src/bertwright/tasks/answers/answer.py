"""The axis of answers: what is asked of an example, how that is learned, and how it is said.

An answer has two halves. The choice is plain data and stands in the description of a task. The
:class:`Answering` that it builds knows the labels, and turns examples into rows and targets, the
outputs of a head into losses, and outputs into predictions.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from bertwright.axes import Choice, did_you_mean
from bertwright.errors import UserError
from bertwright.model.text_model import TextModel
from bertwright.tasks.calibration import Evidence, calibrate
from bertwright.tasks.encoding import RowMaker, TaskRow
from bertwright.tasks.formats.examples import AnyExample, Examples

Floats = NDArray[np.float32]

IMPOSSIBLE = -1e9
"""The logit of what is not there to be chosen: as good as -inf, but it can be subtracted."""

Reads = Literal["text", "places"]
"""Whether a head reads a row as a whole, or some of its places."""

Metric = Callable[[Sequence[Any], Sequence[Any]], float]
"""References and predictions, equally many, to a number that is higher the better."""


@dataclass(frozen=True)
class Prediction:
    """What a model says of one example.

    Attributes:
        answer: a label, labels, a number, a text, the index of an option, or a tag for each word.
        probabilities: for labels and options, of each of them; for tags, of the one that each word
            got; for a text, of it.
        vectors: of the texts of the example, (texts, D), where the answer compares these.
    """

    answer: str | float | int | tuple[str, ...]
    probabilities: dict[str, float] | tuple[float, ...] | float | None = None
    vectors: Floats | None = field(default=None, compare=False, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as it stands in files of predictions."""
        said: dict[str, Any] = {"prediction": self.answer}
        if self.probabilities is not None:
            said["probabilities"] = self.probabilities
        return said


class Answer(Choice):
    """The axis: one kind of answer, with its settings."""

    reads: ClassVar[Reads] = "text"
    labelled: ClassVar[bool] = False
    """Whether the outputs of a head are labels, which are gathered from the training examples."""
    least_labels: ClassVar[int] = 2
    open: ClassVar[bool] = False
    """Whether a label that training has not met may be what is right, as tags often are."""
    calibrated: ClassVar[bool] = False
    """Whether what is said has probabilities that a temperature can mend."""
    together: ClassVar[bool] = False
    """Whether the rows of an example are trained in one step, side by side."""
    question_segment: ClassVar[int | None] = None
    """Which text of a row asks, which is seen from everywhere where an encoder has such places
    (Beltagy et al. 2020, section 3.1); None where no text does."""
    metrics: ClassVar[Mapping[str, Metric]] = {}
    usual_metrics: ClassVar[tuple[str, ...]] = ()

    @property
    def lacks_stride(self) -> bool:
        """Whether a ``stride``, which is not stated, would read in windows what is cut."""
        return False

    @property
    def whole_steps(self) -> bool:
        """Whether a step cannot be computed in parts: its examples are compared with each other."""
        return False

    @property
    def name(self) -> str:
        """The kind, as messages call it."""
        return self.own_kind()

    def build(self, labels: Sequence[str], temperature: float = 1.0) -> "Answering":
        """How answers with these labels are trained and given."""
        raise TypeError(f"{type(self).__name__} is an axis, not an answer")

    def shapes(self) -> tuple[type, ...]:
        """The classes of examples that are understood."""
        raise TypeError(f"{type(self).__name__} is an axis, not an answer")

    def reference(self, example: Any) -> Any:
        """The right answer to an example; None where it is not known."""
        return example.label

    def labels_in(self, example: Any) -> Sequence[str]:
        """The labels that an example has."""
        return ()

    def taught_by(self, examples: Examples) -> Examples:
        """Those of the training examples that there is something to learn from."""
        return examples

    def group(self, example: Any) -> str | None:
        """What examples have in common that are judged together, so that no part of them is learned
        from; None where each is judged by itself."""
        return None

    def usual_for(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Return the metrics that are usual where a task has these labels."""
        return self.usual_metrics

    def require_scored(self, metrics: Sequence[str], labels: Iterable[str]) -> None:
        """Refuse labels that one of the metrics has no meaning for: UserError."""

    def strata(self, examples: Examples) -> list[str]:
        """Return what each example counts for where parts are to be alike: the rarest of its
        labels, "" where it has none."""
        labels = [self.labels_in(example) for example in examples]
        counts = Counter(label for of in labels for label in set(of))
        return [min(of, key=lambda label: (counts[label], label), default="") for of in labels]

    def metric(self, name: str) -> Metric:
        """The metric of that name."""
        if name not in self.metrics:
            known = did_you_mean(name, self.metrics)
            raise UserError(f"no metric {name!r} for an answer of {self.name}{known}")
        return self.metrics[name]

    def score(
        self, metrics: Sequence[str], examples: Examples, predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        """Each of these metrics, over examples whose right answers are known."""
        right = [self.reference(example) for example in examples]
        said = [prediction.answer for prediction in predictions]
        return {name: self.metric(name)(right, said) for name in metrics}

    def settled(
        self,
        answering: "Answering",
        rows: Sequence[TaskRow],
        outputs: Callable[[], Sequence[Floats]],
        examples: Examples,
    ) -> "Settled | None":
        """How to answer by what a trained model says of examples that it has not learned from; None
        where there is nothing to settle, and ``outputs`` are not asked for.

        Where the answer is calibrated that is a temperature.
        """
        evidence = answering.evidence(rows, outputs(), examples) if self.calibrated else None
        if not evidence or not self.is_varied(examples):
            return None
        found = calibrate(evidence)
        return Settled(self, found.temperature, found.as_dict())

    def is_varied(self, examples: Examples) -> bool:
        """Return whether the right answers differ: to be sure of the only one says nothing of how
        sure to be of others."""
        labels = {label for example in examples for label in self.labels_in(example)}
        return not self.labelled or len(labels) > 1

    def unsettled(self) -> "Answer":
        """What it was before it was settled for a model, for another one."""
        return self

    def checked(self, examples: Examples) -> None:
        """Errors: UserError, with file and line, for an example of another shape."""
        for example in examples:
            if not isinstance(example, self.shapes()):
                wanted = " or ".join(shape.__name__ for shape in self.shapes())
                raise UserError(
                    f"{told(example)}: an answer of {self.name} needs {wanted}, and this is "
                    f"{type(example).__name__}"
                )


class Settled(NamedTuple):
    """An answer as held-out examples want it, its temperature, and what was found on the way."""

    answer: Answer
    temperature: float
    figures: Mapping[str, float]


class Answering(ABC):
    """How one kind of answer is trained and given.

    A head gives outputs (M, K): for every item, which is a row or, where the answer keeps the rows
    of an example together, all rows of one, as many as ``num_answers`` says of its rows.
    """

    num_outputs: int = 1
    """K; 0 where states are the answer and no linear map stands behind them."""

    def fitted(self, examples: Examples) -> "Answering":
        """As the training examples want it: their scale, their weights."""
        return self

    def begin(self, out: nn.Module, source: TextModel) -> None:
        """Give the last layer of a head what the pre-trained model knows of the answers."""
        return

    def rows(self, maker: RowMaker, examples: Examples) -> list[TaskRow]:
        """The rows of all examples, those of an example one after the other."""
        return maker.rows(examples)

    def num_answers(self, row: TaskRow) -> int:
        """How many outputs a row has."""
        return len(row.places) or 1

    @abstractmethod
    def targets(self, rows: Sequence[TaskRow], example: Any) -> list[float] | list[int]:
        """What an item of these rows is asked for."""

    def is_placed(self, targets: Sequence[Sequence[float]], example: Any) -> bool:
        """Return whether the targets of all items of an example say its right answer: one that no
        token stands for cannot be learned."""
        return True

    @abstractmethod
    def loss(self, outputs: Tensor, sizes: Sequence[int], targets: Tensor) -> tuple[Tensor, Tensor]:
        """The loss summed over the targets, and how many of them are met.

        ``outputs`` (M, K) are those of some items one after the other, ``sizes`` how many each of
        them has, ``targets`` (T,) what :meth:`targets` gave of them.
        """

    def logits(self, outputs: Tensor, sizes: Sequence[int]) -> Tensor | None:
        """(N, C), the same as what is chosen between, for every choice: a softmax over C is what
        the model says. None where it says numbers."""
        return outputs

    def numbers(self, outputs: Tensor, sizes: Sequence[int]) -> Tensor:
        """(N, C), the same as numbers that those of another model can be laid beside."""
        return outputs

    @abstractmethod
    def predictions(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], examples: Examples
    ) -> list[Prediction]:
        """The answers to all examples; ``outputs`` has (k, K) for every row."""

    def evidence(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], examples: Examples
    ) -> Evidence | None:
        """What a temperature is fitted on, where the answer is calibrated."""
        return None

    def as_trained(self, outputs: Tensor) -> Tensor:
        """Outputs of a finished model as those of a head in training, whose last layer has not
        undone what :meth:`fitted` made of the targets."""
        return outputs

    def fold_into(self, out: nn.Module) -> None:
        """Let the last layer of a head undo what :meth:`fitted` made of the targets."""
        return

    def unfold_from(self, out: nn.Module) -> None:
        """Make the last layer of a finished model what it was in training."""
        return


def by_order(references: Sequence[Any], predictions: Sequence[Any]) -> float:
    """In the place of a metric that references and predictions do not tell: how texts are ranked
    for each query, which an answer finds out in its own :meth:`Answer.score`."""
    raise TypeError("rankings are scored query by query")


def told(example: AnyExample) -> str:
    """What messages call an example."""
    return example.where or "an example"


def by_example(
    rows: Sequence[TaskRow], outputs: Sequence[Floats], num_examples: int
) -> list[list[tuple[TaskRow, Floats]]]:
    """Rows and their outputs, put together for each example."""
    found: list[list[tuple[TaskRow, Floats]]] = [[] for _ in range(num_examples)]
    for row, output in zip(rows, outputs, strict=True):
        found[row.example].append((row, output))
    return found


def cross_entropy(
    outputs: Tensor, targets: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The summed loss and the number of right answers of outputs (M, K), targets (M,)."""
    loss = F.cross_entropy(outputs, targets, weights, reduction="sum")
    return loss, (outputs.argmax(-1) == targets).sum()


def choices(outputs: Tensor, sizes: Sequence[int]) -> Tensor:
    """Outputs (M, K) of items as rows (items * K, C) that are chosen from: K choices of each."""
    parts = list(outputs.split(list(sizes)))
    together = pad_sequence(parts, batch_first=True, padding_value=IMPOSSIBLE)
    return together.transpose(1, 2).flatten(0, 1)


def whether(outputs: Tensor) -> Tensor:
    """Each output as the logits of no and yes, (M * K, 2)."""
    flat = outputs.flatten()
    return torch.stack((torch.zeros_like(flat), flat), 1)


def softmax(outputs: Floats, temperature: float = 1.0) -> Floats:
    """Over the last axis."""
    scaled = outputs / temperature
    powers = np.exp(scaled - scaled.max(-1, initial=-np.inf, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def sigmoid(outputs: Floats, temperature: float = 1.0) -> Floats:
    """Of each number, without overflow."""
    return (0.5 * (1 + np.tanh(outputs / (2 * temperature)))).astype(np.float32)
