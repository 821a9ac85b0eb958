"""Dependency heads: for each word of a sentence, the index of the word that it depends on.

It is the task that the linguistic adapter of K-Adapter learns from (Wang et al. 2021, section 3.3).
There a linear layer predicts the index itself; here the words of the sentence are scored, so that
sentences may have any length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.formats.examples import TaggedSentence
from bertwright.tasks.metrics.metrics import accuracy, label_metric
from bertwright.tasks.outputs.output_decoder import PADDING_LOGIT, OutputDecoder, SequenceOutputs
from bertwright.tasks.outputs.output_type import (
    MetricFunction,
    OutputLevel,
    OutputType,
    location_of,
)
from bertwright.tasks.outputs.prediction import Prediction
from bertwright.tasks.outputs.probabilities import FloatArray, softmax

ROOT = "0"
"""The head of the root of a sentence, as in CoNLL-U."""

IGNORED_TARGET = -100
"""Target of a word whose head is in another sequence; cross-entropy skips it."""


@dataclass(frozen=True)
class DependencyHeadDecoder(OutputDecoder):
    """The decoder of :class:`DependencyHeadOutput`."""

    config: "DependencyHeadOutput"

    @property
    def num_outputs(self) -> int:
        return 2 * self.config.width

    def output_length(self, sequence: TaskSequence) -> int:
        return len(sequence.positions)

    def targets(self, sequences: Sequence[TaskSequence], example: TaggedSentence) -> list[int]:
        """Return the index of the head in the sequence; the root is its own head."""
        assert example.tags is not None, "training examples have heads"
        targets: list[int] = []
        for sequence in sequences:
            size = len(sequence.positions)
            for word in range(size):
                head = example.tags[sequence.first_word + word]
                target = word if head == ROOT else int(head) - 1 - sequence.first_word
                targets.append(target if 0 <= target < size else IGNORED_TARGET)
        return targets

    def logits(self, outputs: Tensor, output_lengths: Sequence[int]) -> Tensor:
        """Return scores (M, C) of the words of each sentence as the head of each of its words.

        outputs: (M, 2 r), a vector of the word as dependent and one as head; the score is their
        scaled dot product.
        """
        scores = [_scores(part) for part in outputs.split([*output_lengths])]
        size = max(output_lengths)
        padded = [F.pad(part, (0, size - len(part)), value=PADDING_LOGIT) for part in scores]
        return torch.cat(padded)

    def decode_example(
        self, example: TaggedSentence, parts: Sequence[SequenceOutputs]
    ) -> Prediction:
        heads: list[str] = []
        probabilities: list[float] = []
        for sequence, outputs in parts:
            scores: FloatArray = _scores(torch.from_numpy(outputs)).numpy()
            best = scores.argmax(1)
            heads += [
                ROOT if head == word else str(sequence.first_word + head + 1)
                for word, head in enumerate(best.tolist())
            ]
            probabilities += softmax(scores)[np.arange(len(best)), best].tolist()
        return Prediction(tuple(heads), tuple(probabilities))


class DependencyHeadOutput(OutputType):
    """The head of every word in a dependency tree, by its number in the sentence; 0 for the root.

    Each word is scored as the head of each other by the product of two vectors of ``width``, a
    bilinear form of low rank (compare Dozat and Manning 2017); the root is the word that is scored
    as its own head. Every word chooses its head alone, so heads may not form a tree.
    """

    kind: Literal["head"] = "head"
    width: int = Field(default=64, ge=1, le=65_536)
    example_type: ClassVar[type] = TaggedSentence
    decoder_type: ClassVar[type[OutputDecoder]] = DependencyHeadDecoder
    level: ClassVar[OutputLevel] = "token"
    has_convex_loss: ClassVar[bool] = False
    metrics: ClassVar[Mapping[str, MetricFunction]] = {
        "attachment": label_metric(accuracy, "words")
    }
    default_metrics: ClassVar[tuple[str, ...]] = ("attachment",)

    def reference(self, example: TaggedSentence) -> tuple[str, ...] | None:
        return example.tags

    def validate_example(self, example: TaggedSentence) -> None:
        heads: Any = example.tags
        if heads is None:
            return
        size = len(example.words)
        if len(heads) != size:
            raise UserError(
                f"{location_of(example)}: {count_noun(len(heads), 'head')} for "
                f"{count_noun(size, 'word')}: give each word one"
            )
        for word, head in zip(example.words, heads, strict=True):
            if not (isinstance(head, str) and head.isdecimal() and int(head) <= size):
                raise UserError(
                    f"{location_of(example)}: the head of the word {word!r} is {head!r}, and the "
                    f"sentence has words 1 to {size}, or 0 for the root"
                )


def _scores(outputs: Tensor) -> Tensor:
    """Return the scores (n, n) of heads for dependents, given the outputs (n, 2 r) of n words."""
    dependents, heads = outputs.chunk(2, dim=-1)
    return dependents @ heads.T / heads.shape[-1] ** 0.5
