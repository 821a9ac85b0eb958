"""Predictions, and the models that make them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.model import Model
from bertwright.models.retrieval_encoder import TextVectors
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.metrics.generated_text import ScoredText
from bertwright.tasks.outputs.probabilities import FloatArray

if TYPE_CHECKING:  # a model loads without SciPy
    from scipy.sparse import csr_matrix


@dataclass(frozen=True)
class Prediction:
    """The prediction of a model for one example.

    Attributes:
        value: a label, labels, a number, a text, the index of an option, or a tag for each word.
        probabilities: of each label or option; for tags, of the predicted tag of each word; for
            spans and generated texts, of the predicted text.
        start: the character of the text at which a predicted span begins.
        vectors: the representations of the example's texts, for texts that are encoded apart.
        scored_text: the generated text, and the likelihood of its reference.
        sets: for a coverage, the set of each decision: of the example, or of every word.
        interval: for a coverage, the lowest and the highest number.
        abstains: for a risk, whether the model is too uncertain; None without one.
    """

    value: str | float | int | tuple[str, ...]
    probabilities: dict[str, float] | tuple[float, ...] | float | None = None
    start: int | None = field(default=None, compare=False)
    vectors: "TextVectors | None" = field(default=None, compare=False, repr=False)
    scored_text: ScoredText | None = field(default=None, compare=False, repr=False)
    sets: tuple[tuple[str | int, ...], ...] | None = None
    interval: tuple[float, float] | None = None
    abstains: bool | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, as in files of predictions."""
        result: dict[str, Any] = {"prediction": self.value}
        if self.probabilities is not None:
            result["probabilities"] = self.probabilities
        if self.sets is not None:
            is_per_word = isinstance(self.value, tuple)
            result |= {"sets": self.sets} if is_per_word else {"set": self.sets[0]}
        if self.interval is not None:
            result["interval"] = self.interval
        if self.abstains is not None:
            result["abstains"] = self.abstains
        return result


class PredictingModel(Protocol):
    """A model whose head outputs, or whose generated texts, become predictions."""

    model: Model
    tokenizer: Tokenizer

    def head_outputs(self, sequences: Sequence[TaskSequence]) -> list[FloatArray]:
        """Return the head outputs of each sequence: (k, K) float32 each."""
        ...

    def token_weights(self, sequences: Sequence[TaskSequence]) -> "csr_matrix":
        """Return the token weights (N, V) of texts, for a head that weights tokens."""
        ...

    def language_id(self, language: str | None) -> int | None:
        """Return the index of a language embedding."""
        ...
