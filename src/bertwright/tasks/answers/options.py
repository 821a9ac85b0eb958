"""One of some options: every option is a row, and the highest of their outputs wins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
from torch import Tensor

from bertwright.errors import UserError
from bertwright.tasks import metrics
from bertwright.tasks.answers.answer import (
    Answer,
    Answering,
    Floats,
    Metric,
    Prediction,
    by_example,
    choices,
    cross_entropy,
    softmax,
    told,
)
from bertwright.tasks.calibration import Decision, Evidence
from bertwright.tasks.encoding import RowMaker, TaskRow
from bertwright.tasks.formats.examples import Example, Examples, Options


class OptionAnswer(Answer):
    """The right one of some options: softmax over one output of each (Radford et al. 2018).

    A row is the text, then the question with the option.
    """

    kind: Literal["option"] = "option"
    calibrated: ClassVar[bool] = True
    together: ClassVar[bool] = True
    question_segment: ClassVar[int | None] = 1
    metrics: ClassVar[Mapping[str, Metric]] = {"accuracy": metrics.accuracy}
    usual_metrics: ClassVar[tuple[str, ...]] = ("accuracy",)

    def shapes(self) -> tuple[type, ...]:
        return (Options,)

    def checked(self, examples: Examples) -> None:
        super().checked(examples)
        for example in cast(Sequence[Options], examples):
            label: Any = example.label
            named = isinstance(label, int) and not isinstance(label, bool)
            if label is not None and not (named and 0 <= label < len(example.options)):
                raise UserError(
                    f"{told(example)}: the label {label!r} is none of the indices 0 to "
                    f"{len(example.options) - 1} of the options"
                )

    def build(self, labels: Sequence[str], temperature: float = 1.0) -> "OptionAnswering":
        return OptionAnswering(temperature)


@dataclass(frozen=True)
class OptionAnswering(Answering):
    """Of :class:`OptionAnswer`."""

    temperature: float = 1.0

    def rows(self, maker: RowMaker, examples: Examples) -> list[TaskRow]:
        pairs: list[Example] = []
        owner: list[int] = []
        for number, example in enumerate(examples):
            assert isinstance(example, Options)
            for option in example.options:
                said = f"{example.question} {option}".strip()
                pairs.append(Example(example.first, said) if example.first else Example(said))
                owner.append(number)
        return maker.rows(pairs, owner=owner)

    def targets(self, rows: Sequence[TaskRow], example: Options) -> list[int]:
        assert example.label is not None, "what is trained on has a right option"
        return [example.label]

    def loss(self, outputs: Tensor, sizes: Sequence[int], targets: Tensor) -> tuple[Tensor, Tensor]:
        return cross_entropy(self.logits(outputs, sizes), targets)

    def logits(self, outputs: Tensor, sizes: Sequence[int]) -> Tensor:
        return choices(outputs, sizes)

    def predictions(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], examples: Examples
    ) -> list[Prediction]:
        found: list[Prediction] = []
        for parts in by_example(rows, outputs, len(examples)):
            said = np.array([output[0, 0] for _, output in parts], np.float32)
            chances = softmax(said, self.temperature)
            found.append(Prediction(int(said.argmax()), tuple(chances.tolist())))
        return found

    def evidence(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], examples: Examples
    ) -> Evidence:
        items = by_example(rows, outputs, len(examples))
        said = np.full((len(items), max(map(len, items), default=1)), -np.inf)
        for number, parts in enumerate(items):
            said[number, : len(parts)] = [output[0, 0] for _, output in parts]
        right = [cast(int, cast(Options, example).label) for example in examples]
        return Evidence.of(
            Decision(number, right[number], own[None]) for number, own in enumerate(said)
        )
