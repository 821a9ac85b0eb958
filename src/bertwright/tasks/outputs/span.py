"""Extractive question answering: each position has an output for start and end of the answer.

A long text is read in overlapping windows. The first position means "not here": it is the target in
windows without the answer and for unanswerable questions (Devlin et al. 2019, sections 4.2 and
4.3).
"""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.formats.examples import ExtractiveQuestion
from bertwright.tasks.metrics.squad import exact_match, word_f1, word_f1_with_no_answer
from bertwright.tasks.outputs.no_answer_threshold import NoAnswerScores, fit_threshold
from bertwright.tasks.outputs.output_decoder import (
    OutputDecoder,
    SequenceOutputs,
    choice_logits,
    group_by_example,
)
from bertwright.tasks.outputs.output_type import (
    CalibrationResult,
    MetricFunction,
    OutputLevel,
    OutputType,
    location_of,
)
from bertwright.tasks.outputs.prediction import Prediction
from bertwright.tasks.outputs.probabilities import FloatArray, softmax

N_BEST_SIZE = 20
"""Number of best starts and of best ends that are combined into spans."""


class AnswerSpan(NamedTuple):
    """Characters [start, stop) of a text, and the score of the answer."""

    start: int
    stop: int
    score: float


@dataclass(frozen=True)
class SpanDecoder(OutputDecoder):
    """The decoder of :class:`SpanOutput`."""

    config: "SpanOutput"

    @property
    def num_outputs(self) -> int:
        return 2

    def encode(
        self, example_encoder: ExampleEncoder, examples: Sequence[ExtractiveQuestion]
    ) -> list[TaskSequence]:
        return example_encoder.encode_questions(
            examples, self.config.stride, self.config.max_question_length
        )

    def targets(self, sequences: Sequence[TaskSequence], example: ExtractiveQuestion) -> list[int]:
        """Return the positions of the first and last tokens that overlap the answer.

        If there are several answers, the first one that overlaps any token is used; (0, 0) if the
        window does not contain all of it.
        """
        (window,) = sequences
        tokens = _answer_tokens(window.text_offsets, example)
        if tokens is None:
            return [0, 0]
        first, last = (token - window.first_token for token in tokens)
        return [1 + first, 1 + last] if 0 <= first <= last < len(window.offsets) else [0, 0]

    def has_target(self, targets: Sequence[Sequence[float]], example: ExtractiveQuestion) -> bool:
        return not example.answers or any(any(window_targets) for window_targets in targets)

    def logits(self, outputs: Tensor, output_lengths: Sequence[int]) -> Tensor:
        return choice_logits(outputs, output_lengths)

    def no_answer_scores(
        self,
        sequences: Sequence[TaskSequence],
        outputs: Sequence[FloatArray],
        examples: Sequence[ExtractiveQuestion],
    ) -> NoAnswerScores:
        """Return the scores of answering and of not answering, for each example."""
        margins: list[float] = []
        answer_f1: list[float] = []
        no_answer_f1: list[float] = []
        groups = group_by_example(sequences, outputs, len(examples))
        for question, windows in zip(examples, groups, strict=True):
            spans, no_answer = self._best_spans(windows)
            margins.append(no_answer - spans[0].score if spans else np.inf)
            text = _span_text(question.text, spans[0]) if spans else ""
            references = [question.answers or ()]
            answer_f1.append(word_f1_with_no_answer(references, [text]))
            no_answer_f1.append(word_f1_with_no_answer(references, [""]))
        return NoAnswerScores(np.array(margins), np.array(answer_f1), np.array(no_answer_f1))

    def decode_example(
        self, example: ExtractiveQuestion, parts: Sequence[SequenceOutputs]
    ) -> Prediction:
        spans, no_answer = self._best_spans(parts)
        scores = [span.score for span in spans]
        if self.config.unanswerable:
            scores.append(no_answer)
        probabilities = softmax(np.array(scores, np.float32)) if scores else np.zeros(1, np.float32)
        best, threshold = spans[0].score if spans else -np.inf, self.config.threshold or 0.0
        if not spans or (self.config.unanswerable and no_answer - best > threshold):
            return Prediction("", float(probabilities[-1]))
        text = _span_text(example.text, spans[0])
        return Prediction(text, float(probabilities[0]), start=spans[0].start)

    def _best_spans(self, windows: Sequence[SequenceOutputs]) -> tuple[list[AnswerSpan], float]:
        """Return the distinct spans with the best scores, and the no-answer score.

        A span counts with its best window, even if another window shows more context (the published
        code of BERT takes only the latter).
        """
        spans = [s for window, output in windows for s in self._window_spans(window, output)]
        best: dict[tuple[int, int], AnswerSpan] = {}
        for span in sorted(spans, key=lambda span: -span.score):
            best.setdefault((span.start, span.stop), span)
        no_answer = min(float(output[0].sum()) for _, output in windows)
        return list(best.values())[:N_BEST_SIZE], no_answer

    def _window_spans(self, sequence: TaskSequence, output: FloatArray) -> list[AnswerSpan]:
        """Return the best spans of a window as character ranges, given its outputs (1 + P, 2)."""
        starts, ends = output[1:, 0], output[1:, 1]
        spans: list[AnswerSpan] = []
        for first in np.argsort(-starts, kind="stable")[:N_BEST_SIZE]:
            for last in np.argsort(-ends, kind="stable")[:N_BEST_SIZE]:
                if first <= last < first + self.config.max_answer_length:
                    start, stop = sequence.offsets[first][0], sequence.offsets[last][1]
                    spans.append(AnswerSpan(start, stop, float(starts[first] + ends[last])))
        return spans


class SpanOutput(OutputType):
    """The span of a text that answers a question.

    Attributes:
        stride: tokens between the starts of two windows of a text.
        max_question_length: in tokens; longer questions are truncated.
        max_answer_length: in tokens.
        unanswerable: whether a text may have no answer; the prediction is then "".
        threshold: "no answer" is predicted if its margin over the best span is above this value.
            Unless configured, it is 0 in training and then the best value on the held-out examples.
        is_threshold_fitted: whether it was fitted; another model then fits its own.
    """

    kind: Literal["span"] = "span"
    stride: int = Field(default=128, ge=1, le=1 << 20)
    max_question_length: int = Field(default=64, ge=1, le=1 << 20)
    max_answer_length: int = Field(default=30, ge=1, le=1 << 20)
    unanswerable: bool = False
    threshold: float | None = None
    is_threshold_fitted: bool = False
    example_type: ClassVar[type] = ExtractiveQuestion
    decoder_type: ClassVar[type[OutputDecoder]] = SpanDecoder
    level: ClassVar[OutputLevel] = "token"
    question_segment: ClassVar[int | None] = 0
    metrics: ClassVar[Mapping[str, MetricFunction]] = {"f1": word_f1, "exact": exact_match}
    default_metrics: ClassVar[tuple[str, ...]] = ("f1", "exact")

    def validate_example(self, example: ExtractiveQuestion) -> None:
        answers = example.answers or ()
        if len(example.starts) < min(len(answers), 1) or any(
            example.text[start : start + len(answer)] != answer
            for answer, start in zip(answers, example.starts, strict=False)
        ):
            raise UserError(
                f"{location_of(example)}: the answers are not in the text at the characters in "
                f"starts: fix the start of each"
            )

    def reference(self, example: ExtractiveQuestion) -> tuple[str, ...] | None:
        return example.answers

    def strata(self, examples: Sequence[ExtractiveQuestion]) -> list[str]:
        return ["answered" if example.answers else "" for example in examples]

    def has_distinct_references(self, examples: Sequence[Any]) -> bool:
        return len(set(self.strata(examples))) > 1

    def metric(self, name: str) -> MetricFunction:
        metric = super().metric(name)
        return word_f1_with_no_answer if metric is word_f1 and self.unanswerable else metric

    def calibrate(
        self,
        output_decoder: OutputDecoder,
        sequences: Sequence[TaskSequence],
        read_outputs: Callable[[], Sequence[FloatArray]],
        examples: Sequence[Any],
    ) -> CalibrationResult | None:
        """Fit the no-answer threshold that maximises the word F1."""
        if (
            not self.unanswerable
            or self.threshold is not None
            or not self.has_distinct_references(examples)
        ):
            return None
        assert isinstance(output_decoder, SpanDecoder)
        scores = output_decoder.no_answer_scores(sequences, read_outputs(), examples)
        fit = fit_threshold(scores)
        fitted = self.model_copy(update={"threshold": fit.threshold, "is_threshold_fitted": True})
        return CalibrationResult(fitted, 1.0, fit.as_dict())

    def uncalibrated(self) -> "SpanOutput":
        if not self.is_threshold_fitted:
            return self
        return self.model_copy(update={"threshold": None, "is_threshold_fitted": False})


def _answer_tokens(
    offsets: Sequence[tuple[int, int]], example: ExtractiveQuestion
) -> tuple[int, int] | None:
    """Return the indices of the first and last tokens of a text that overlap its answer.

    An answer may begin or end with characters outside of all tokens: spaces, or characters that the
    tokenizer drops.
    """
    for start, answer in zip(example.starts, example.answers or (), strict=False):
        stop = start + len(answer)
        tokens = [
            index
            for index, (token_start, token_stop) in enumerate(offsets)
            if max(token_start, start) < min(token_stop, stop)
        ]
        if tokens:
            return tokens[0], tokens[-1]
    return None


def _span_text(text: str, span: AnswerSpan) -> str:
    """Return the text of a span and its combining marks, which a tokenizer may drop."""
    stop = span.stop
    while stop < len(text) and unicodedata.category(text[stop]).startswith("M"):
        stop += 1
    return text[span.start : stop]
