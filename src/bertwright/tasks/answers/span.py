"""A span of a text: two outputs for every place, where it begins and where it ends.

A long text is read in windows that overlap. The first place of a row stands for "not here": in
training for windows without the answer, and where questions may have none, for that (Devlin et al.
2019, sections 4.2 and 4.3).
"""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, cast

import numpy as np
from pydantic import Field
from torch import Tensor

from bertwright.errors import UserError
from bertwright.tasks.answers.answer import (
    Answer,
    Answering,
    Floats,
    Metric,
    Prediction,
    Reads,
    Settled,
    by_example,
    choices,
    cross_entropy,
    softmax,
    told,
)
from bertwright.tasks.doubts import Doubts, settle
from bertwright.tasks.encoding import RowMaker, TaskRow
from bertwright.tasks.formats.examples import Examples, Question
from bertwright.tasks.wording import exact_match, word_f1, word_f1_or_none

CONSIDERED = 20
"""The most probable beginnings, and as many ends, that are put together."""


class SpanAnswer(Answer):
    """The span of a text that answers a question.

    Attributes:
        stride: pieces between the beginnings of two windows of a text.
        longest_question: pieces of a question that are read.
        longest_answer: pieces of an answer.
        unanswerable: whether a text may have no answer; said is then "".
        threshold: by how much "no answer" must be ahead of the best span to be said; by 0 while
            training, then by what is best on the held-out part, unless a number is stated.
        threshold_found: whether it was found so: another model finds its own.
    """

    kind: Literal["span"] = "span"
    stride: int = Field(default=128, ge=1, le=1 << 20)
    longest_question: int = Field(default=64, ge=1, le=1 << 20)
    longest_answer: int = Field(default=30, ge=1, le=1 << 20)
    unanswerable: bool = False
    threshold: float | None = None
    threshold_found: bool = False
    reads: ClassVar[Reads] = "places"
    question_segment: ClassVar[int | None] = 0
    metrics: ClassVar[Mapping[str, Metric]] = {"f1": word_f1, "exact": exact_match}
    usual_metrics: ClassVar[tuple[str, ...]] = ("f1", "exact")

    def shapes(self) -> tuple[type, ...]:
        return (Question,)

    def build(self, labels: Sequence[str], temperature: float = 1.0) -> "SpanAnswering":
        return SpanAnswering(self)

    def checked(self, examples: Examples) -> None:
        super().checked(examples)
        for example in cast(Sequence[Question], examples):
            answers = example.answers or ()
            if len(example.starts) < min(len(answers), 1) or any(
                example.text[start : start + len(answer)] != answer
                for answer, start in zip(answers, example.starts, strict=False)
            ):
                raise UserError(
                    f"{told(example)}: the answers do not stand in the text at the characters that "
                    f"starts names: state where each begins"
                )

    def reference(self, example: Question) -> tuple[str, ...] | None:
        return example.answers

    def strata(self, examples: Examples) -> list[str]:
        return ["answered" if _question(example).answers else "" for example in examples]

    def is_varied(self, examples: Examples) -> bool:
        return len(set(self.strata(examples))) > 1

    def metric(self, name: str) -> Metric:
        found = super().metric(name)
        return word_f1_or_none if found is word_f1 and self.unanswerable else found

    def settled(
        self,
        answering: Answering,
        rows: Sequence[TaskRow],
        outputs: Callable[[], Sequence[Floats]],
        examples: Examples,
    ) -> Settled | None:
        """The threshold under which most words of the answers are right."""
        if not self.unanswerable or self.threshold is not None or not self.is_varied(examples):
            return None
        assert isinstance(answering, SpanAnswering)
        doubts = answering.doubts(rows, outputs(), examples)
        found = settle(doubts)
        answer = self.model_copy(update={"threshold": found.threshold, "threshold_found": True})
        return Settled(answer, 1.0, found.as_dict())

    def unsettled(self) -> "SpanAnswer":
        if not self.threshold_found:
            return self
        return self.model_copy(update={"threshold": None, "threshold_found": False})


class Span(NamedTuple):
    """Characters [start, stop) of a text and how good an answer they are."""

    start: int
    stop: int
    score: float


@dataclass(frozen=True)
class SpanAnswering(Answering):
    """Of :class:`SpanAnswer`."""

    choice: SpanAnswer
    num_outputs: int = 2

    def rows(self, maker: RowMaker, examples: Examples) -> list[TaskRow]:
        asked = [_question(example) for example in examples]
        return maker.windows(asked, self.choice.stride, self.choice.longest_question)

    def targets(self, rows: Sequence[TaskRow], example: Question) -> list[int]:
        """Return the positions of the first and the last token that overlap the answer, of several
        the first that tokens overlap; (0, 0) where the window does not hold all of them."""
        (row,) = rows
        tokens = _answer_tokens(row.text_characters, example)
        if tokens is None:
            return [0, 0]
        first, last = (token - row.first_token for token in tokens)
        return [1 + first, 1 + last] if 0 <= first <= last < len(row.characters) else [0, 0]

    def is_placed(self, targets: Sequence[Sequence[float]], example: Question) -> bool:
        return not example.answers or any(any(of_window) for of_window in targets)

    def loss(self, outputs: Tensor, sizes: Sequence[int], targets: Tensor) -> tuple[Tensor, Tensor]:
        return cross_entropy(self.logits(outputs, sizes), targets)

    def logits(self, outputs: Tensor, sizes: Sequence[int]) -> Tensor:
        return choices(outputs, sizes)

    def predictions(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], examples: Examples
    ) -> list[Prediction]:
        together = by_example(rows, outputs, len(examples))
        return [
            self._prediction(_question(example), windows)
            for example, windows in zip(examples, together, strict=True)
        ]

    def doubts(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], examples: Examples
    ) -> Doubts:
        """What is known of whether to answer each of these examples."""
        leads: list[float] = []
        said: list[str] = []
        asked = [_question(example) for example in examples]
        for question, windows in zip(asked, by_example(rows, outputs, len(asked)), strict=True):
            spans, nothing = self._found(windows)
            leads.append(nothing - spans[0].score if spans else np.inf)
            said.append(_written(question.text, spans[0]) if spans else "")
        right = [question.answers or () for question in asked]
        return Doubts(
            np.array(leads),
            np.array([word_f1_or_none([r], [text]) for r, text in zip(right, said, strict=True)]),
            np.array([word_f1_or_none([r], [""]) for r in right]),
        )

    def _prediction(
        self, example: Question, windows: Sequence[tuple[TaskRow, Floats]]
    ) -> Prediction:
        spans, nothing = self._found(windows)
        scores = [span.score for span in spans]
        if self.choice.unanswerable:
            scores.append(nothing)
        chances = softmax(np.array(scores, np.float32)) if scores else np.zeros(1, np.float32)
        best, threshold = spans[0].score if spans else -np.inf, self.choice.threshold or 0.0
        if not spans or (self.choice.unanswerable and nothing - best > threshold):
            return Prediction("", float(chances[-1]))
        return Prediction(_written(example.text, spans[0]), float(chances[0]))

    def _found(self, windows: Sequence[tuple[TaskRow, Floats]]) -> tuple[list[Span], float]:
        """The best spans of a text, each as good as where it is best, and how good it is to say
        nothing."""
        spans = [span for row, output in windows for span in self._spans(row, output)]
        best: dict[tuple[int, int], Span] = {}
        for span in sorted(spans, key=lambda span: -span.score):
            best.setdefault((span.start, span.stop), span)
        nothing = min(float(output[0].sum()) for _, output in windows)
        return list(best.values())[:CONSIDERED], nothing

    def _spans(self, row: TaskRow, output: Floats) -> list[Span]:
        """The best spans of a window: outputs (1 + P, 2) to characters."""
        starts, ends = output[1:, 0], output[1:, 1]
        found: list[Span] = []
        for first in np.argsort(-starts, kind="stable")[:CONSIDERED]:
            for last in np.argsort(-ends, kind="stable")[:CONSIDERED]:
                if first <= last < first + self.choice.longest_answer:
                    start, stop = row.characters[first][0], row.characters[last][1]
                    found.append(Span(start, stop, float(starts[first] + ends[last])))
        return found


def _answer_tokens(
    characters: Sequence[tuple[int, int]], example: Question
) -> tuple[int, int] | None:
    """Return the indices of the first and the last token of a text that overlap its answer, which
    may begin or end with characters of no token: blanks, or what a tokenizer drops."""
    for start, answer in zip(example.starts, example.answers or (), strict=False):
        stop = start + len(answer)
        inside = [
            n for n, (begin, end) in enumerate(characters) if max(begin, start) < min(end, stop)
        ]
        if inside:
            return inside[0], inside[-1]
    return None


def _written(text: str, span: Span) -> str:
    """Return the text of a span, with the combining marks behind it: a tokenizer that drops them
    ends its token before."""
    stop = span.stop
    while stop < len(text) and unicodedata.category(text[stop]).startswith("M"):
        stop += 1
    return text[span.start : stop]


def _question(example: object) -> Question:
    assert isinstance(example, Question), "an answer of span is asked of questions"
    return example
