"""What a graph loses in int8: the difference from the float32 graph, on texts and examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from bertwright.core.config import Settings
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Examples

if TYPE_CHECKING:  # the manifest, which a model reads, contains the loss
    from bertwright.interop.onnx.model import OnnxModel

SAMPLE_TEXTS = (
    "A short one.",
    "Is it raining? No: it stopped an hour ago.",
    "The weather was fine, and so everybody went down to the harbour to see the ships.",
    "It costs 12.50, they wrote; few believed it!",
    "Of all the books that she had read that year, only one was worth the evening it took.",
    "Bring the ladder round to the back of the house, then lean it against the wall.",
)

MAX_ITEMS = 6

MAX_EXAMPLES = 1024
"""Maximum number of examples to compare the predictions on."""


@dataclass(frozen=True)
class Int8Samples:
    """What to measure the loss on: texts, by default a few in English, and examples of a task."""

    texts: Sequence[str] = ()
    examples: Examples = ()


class Int8Loss(Settings):
    """The difference between an int8 graph and the float32 graph.

    Attributes:
        texts: the texts that were compared, in words.
        max_difference: of the logits of a task, or else of the embeddings.
        cosine: mean cosine between the embeddings of a text.
        min_cosine: the lowest one.
        num_examples: number of examples of the task.
        agreement: fraction of equal predictions; None without examples and for numbers.
        scores: for each metric, the scores in float32 and in int8.
    """

    texts: str
    max_difference: float
    cosine: float
    min_cosine: float
    num_examples: int = 0
    agreement: float | None = None
    scores: dict[str, tuple[float, float]] = Field(default_factory=dict[str, tuple[float, float]])

    @property
    def description(self) -> str:
        """The loss in words."""
        parts = [
            f"cosine {self.cosine:.4f} (lowest {self.min_cosine:.4f}) to float32 on {self.texts}"
        ]
        if self.agreement is not None:
            parts.append(f"{self.agreement:.1%} of {self.num_examples} predictions are equal")
        parts += [
            f"{metric} {int8:.4f} instead of {float32:.4f} on {self.num_examples} examples"
            for metric, (float32, int8) in self.scores.items()
        ]
        return "; ".join(parts)


def measure_int8_loss(
    float32: "OnnxModel", int8: "OnnxModel", samples: Int8Samples = Int8Samples()
) -> Int8Loss:
    """Compare two graphs of a model on texts, and on examples if it is fine-tuned."""
    texts = list(samples.texts) or sample_texts(float32.tokenizer)
    values, expected = (m.outputs_for_texts(m.main_output, texts) for m in (int8, float32))
    vectors, others = (model.embed(texts, normalise=True) for model in (int8, float32))
    cosines = (vectors * others).sum(1)
    kind = "given" if samples.texts else "sample"
    loss = Int8Loss(
        texts=f"{len(texts)} {kind} texts",
        max_difference=max(
            float(np.abs(a - b).max()) for a, b in zip(values, expected, strict=True)
        ),
        cosine=float(cosines.mean()),
        min_cosine=float(cosines.min()),
    )
    if not samples.examples:
        return loss
    assert isinstance(float32, FineTunedModel), "examples are of a task"
    assert isinstance(int8, FineTunedModel)
    exact, rounded = (model.predict(samples.examples) for model in (float32, int8))
    task, is_number = float32.task, any(isinstance(p.value, float) for p in exact)
    before, after = (task.score(samples.examples, p) for p in (exact, rounded))
    equal = [a.value == b.value for a, b in zip(exact, rounded, strict=True)]
    return loss.model_copy(
        update={
            "num_examples": len(samples.examples),
            "agreement": None if is_number else float(np.mean(equal)),
            "scores": {name: (before[name], after[name]) for name in before},
        }
    )


def sample_texts(tokenizer: Tokenizer) -> list[str]:
    """Return sample texts for a tokenizer; for a tokenizer of items, sequences of items."""
    if tokenizer.kind != "items":
        return list(SAMPLE_TEXTS)
    items = [n for n in tokenizer.ids.tolist() if n not in tokenizer.special_tokens.all][:MAX_ITEMS]
    return [" ".join(map(tokenizer.id_to_token, items[: n + 1])) for n in range(len(items))]
