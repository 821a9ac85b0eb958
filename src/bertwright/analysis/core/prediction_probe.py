"""Loss and accuracy of predictions for each text.

Used to measure head removal and perturbations. The masked positions are the same every time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.result import (
    AnalysisFinding,
    BaselineValue,
    interval_finding,
)
from bertwright.analysis.core.texts import AnalysedText, token_batches
from bertwright.core.errors import UserError
from bertwright.core.rng import stream_key, uniform
from bertwright.core.significance import FloatArray, bootstrap_difference, split_halves
from bertwright.models.scoring.likelihood import causal_visibility
from bertwright.models.scoring.masked_states import (
    masked_hidden_states,
)
from bertwright.models.text_batches import TextBatch
from bertwright.tasks.evaluation.evaluate import task_examples
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.outputs import ClassificationOutput

MASKED_FRACTION = 0.15
"""Fraction of a text's tokens that are masked, at least one; a causal model predicts all."""

MAX_TOKENS_PER_BATCH = 2048


@dataclass(frozen=True)
class PredictionScores:
    """Loss in nats, correct predictions and number of targets of each text, (N,) each."""

    loss: FloatArray
    num_correct: FloatArray
    num_targets: FloatArray

    @property
    def loss_ratio(self) -> tuple[FloatArray, FloatArray]:
        """Loss and number of targets of each text."""
        return self.loss, self.num_targets

    @property
    def accuracy_ratio(self) -> tuple[FloatArray, FloatArray]:
        """Number of correct predictions and of targets of each text."""
        return self.num_correct, self.num_targets

    @property
    def mean_loss(self) -> float:
        """Loss per target, in nats."""
        return float(self.loss.sum() / self.num_targets.sum())

    @property
    def accuracy(self) -> float:
        """Fraction of correct predictions."""
        return float(self.num_correct.sum() / self.num_targets.sum())

    def loss_minus(
        self, other: "PredictionScores", metric: str, *, seed: int, layer: int | None = None
    ) -> AnalysisFinding:
        """Return a finding for the loss of these scores minus the loss of other scores."""
        difference = bootstrap_difference(self.loss_ratio, other.loss_ratio, seed=seed)
        baseline = BaselineValue("loss compared with", other.mean_loss)
        return interval_finding(metric, difference, layer, baseline=baseline)


ScoredBatches = Iterator[tuple[list[int], Tensor, Tensor, Tensor]]
"""Text indices with the loss, correct predictions and number of targets per text, (B,) each."""


BatchContext = Callable[[TextBatch], AbstractContextManager[None]]
"""Returns a context manager to wrap around the forward pass of a batch."""


@dataclass(frozen=True)
class PredictionProbe(ABC):
    """Texts with prediction targets, used to score a model."""

    model: AnalysedModel
    texts: Sequence[AnalysedText]
    seed: int

    @torch.inference_mode()
    def evaluate(self) -> PredictionScores:
        """Score the model in its current state, including active gates and replacements."""
        scores = PredictionScores(*(np.zeros(len(self.texts)) for _ in range(3)))
        for indices, *values in self.scored_batches():
            arrays = (scores.loss, scores.num_correct, scores.num_targets)
            for array, value in zip(arrays, values, strict=True):
                array[indices] = value.double().cpu()
        return scores

    @abstractmethod
    def scored_batches(self, context: BatchContext = lambda _: nullcontext()) -> ScoredBatches:
        """Yield the scores of batches, with gradients if these are enabled."""


@dataclass(frozen=True)
class MaskedLMProbe(PredictionProbe):
    """A probe that masks some tokens of every text and scores their prediction."""

    seed: int = 0

    def scored_batches(self, context: BatchContext = lambda _: nullcontext()) -> ScoredBatches:
        for batch in token_batches(self.model, self.texts, MAX_TOKENS_PER_BATCH):
            with context(batch):
                logits, target, is_target = self._logits_and_targets(batch)
            log_probabilities = logits.log_softmax(-1).gather(-1, target[..., None])[..., 0]
            correct = (logits.argmax(-1) == target) & is_target
            yield (
                batch.indices.tolist(),
                -(log_probabilities * is_target).sum(-1),
                correct.sum(-1).to(log_probabilities),
                is_target.sum(-1).to(log_probabilities),
            )

    @torch.inference_mode()
    def confidence_sums(self) -> FloatArray:
        """Return the probabilities of the predicted tokens, summed over each text, (N,)."""
        confidence = np.zeros(len(self.texts))
        for batch in token_batches(self.model, self.texts, MAX_TOKENS_PER_BATCH):
            logits, _, is_target = self._logits_and_targets(batch)
            sums = (logits.softmax(-1).amax(-1) * is_target).sum(-1)
            confidence[batch.indices] = sums.double().cpu().numpy()
        return confidence

    def _logits_and_targets(self, batch: TextBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits (B, m, V), target ids (B, m), and a mask of real targets (B, m)."""
        model, token_ids = self.model.text_model.model, batch.token_ids
        if self.model.text_model.is_causal:
            states = model(token_ids, batch.token_info, causal_visibility(model))
            lengths = torch.tensor(batch.lengths, device=token_ids.device)[:, None]
            is_target = torch.arange(1, token_ids.shape[1], device=token_ids.device) < lengths
            return model.logits(states[:, :-1]), token_ids[:, 1:], is_target
        positions, is_target = self._padded_target_positions(batch)
        masked = torch.zeros_like(token_ids, dtype=torch.bool)
        masked.scatter_(1, positions, True)
        mask_id = self.model.tokenizer.special_tokens.mask
        states = masked_hidden_states(
            model, token_ids, batch.token_info, masked, positions, mask_id
        )
        return model.logits(states), token_ids.gather(1, positions), is_target

    def _padded_target_positions(self, batch: TextBatch) -> tuple[Tensor, Tensor]:
        """Return the target positions (B, m), and a mask (B, m) of those that are not padding."""
        targets = [self.target_positions(int(index)) for index in batch.indices]
        longest = max(map(len, targets))
        padded = torch.tensor([[*t, *([t[-1]] * (longest - len(t)))] for t in targets])
        sizes = torch.tensor([len(positions) for positions in targets])
        is_target = torch.arange(longest) < sizes[:, None]
        return padded.to(batch.token_ids.device), is_target.to(batch.token_ids.device)

    def target_positions(self, text_index: int) -> list[int]:
        """Return the masked positions of a text."""
        maskable = np.flatnonzero(self.texts[text_index].word_ids >= 0)
        # Positions are counted from the first word, so that a prefix does not change the draw.
        drawn = uniform(stream_key(self.seed, "asking"), text_index, maskable - maskable[0] + 1)
        threshold = np.sort(drawn)[max(1, round(MASKED_FRACTION * len(maskable))) - 1]
        return maskable[drawn <= threshold].tolist()


def is_classifier(model: AnalysedModel) -> bool:
    """Return True for a model that classifies a text, or a pair in one sequence."""
    text_model = model.text_model
    if not isinstance(text_model, FineTunedModel) or text_model.example_encoder.is_siamese:
        return False
    return isinstance(text_model.task.output_type, ClassificationOutput)


def class_names(model: AnalysedModel) -> Sequence[str]:
    """Return the class names; empty for a language model."""
    text_model = model.text_model
    return text_model.task.labels if isinstance(text_model, FineTunedModel) else ()


@dataclass(frozen=True)
class ClassificationProbe(PredictionProbe):
    """A probe that scores the predicted class of each text against a label."""

    labels: Sequence[int]

    def scored_batches(self, context: BatchContext = lambda _: nullcontext()) -> ScoredBatches:
        for indices, logits in _class_logits(self.model, self.texts, context):
            target = torch.tensor([self.labels[n] for n in indices], device=logits.device)
            loss = F.cross_entropy(logits, target, reduction="none")
            correct = (logits.argmax(-1) == target).to(logits)
            yield indices, loss, correct, torch.ones_like(correct)


def read_labelled_texts(model: AnalysedModel, folder: Path) -> list[Example]:
    """Read the labelled development texts of a folder for the task of a classifier.

    Errors: UserError if the model is not a classifier, and for unreadable files.
    """
    text_model = model.text_model
    if not isinstance(text_model, FineTunedModel) or not is_classifier(model):
        raise UserError(
            f"{folder} is a task, and {model.name} is not a classifier: give a text file"
        )
    examples = task_examples(text_model.task, folder)
    return [example for example in examples if isinstance(example, Example)]


def target_classes(model: AnalysedModel, texts: Sequence[AnalysedText]) -> list[int]:
    """Return the class index of each text: its label if it has one, else the predicted class."""
    labels = class_names(model)
    return [
        labels.index(text.source.label)
        if isinstance(text.source, Example) and text.source.label in labels
        else predicted
        for text, predicted in zip(texts, predicted_classes(model, texts), strict=True)
    ]


@torch.inference_mode()
def predicted_classes(model: AnalysedModel, texts: Sequence[AnalysedText]) -> list[int]:
    """Return the predicted class index of each text."""
    classes = [0] * len(texts)
    for indices, logits in _class_logits(model, texts, lambda _: nullcontext()):
        for index, label in zip(indices, logits.argmax(-1).tolist(), strict=True):
            classes[index] = label
    return classes


def _class_logits(
    model: AnalysedModel, texts: Sequence[AnalysedText], context: BatchContext
) -> Iterator[tuple[list[int], Tensor]]:
    text_model = model.text_model
    assert isinstance(text_model, FineTunedModel)
    for batch in token_batches(model, texts, MAX_TOKENS_PER_BATCH):
        with context(batch):
            logits = text_model.task_model(batch.token_ids, batch.token_info)
        yield batch.indices.tolist(), logits


def prediction_probe(inputs: AnalysisInput) -> PredictionProbe:
    """Return the probe that suits the model.

    Texts without a label are scored against the model's current prediction.
    """
    if is_classifier(inputs.model):
        labels = target_classes(inputs.model, inputs.texts)
        return ClassificationProbe(inputs.model, inputs.texts, inputs.seed, labels)
    return MaskedLMProbe(inputs.model, inputs.texts, inputs.seed)


def split_probes(inputs: AnalysisInput) -> tuple[PredictionProbe, PredictionProbe]:
    """Return probes for the two halves of the texts: one to select on, one to evaluate on."""
    first, second = (
        prediction_probe(replace(inputs, texts=[inputs.texts[number] for number in half]))
        for half in split_halves(len(inputs.texts), inputs.seed)
    )
    return first, second
