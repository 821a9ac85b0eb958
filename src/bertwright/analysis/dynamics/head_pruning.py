"""Pruning of heads and feed-forward layers of a fine-tuned model by importance.

The model can also be trained with the pruned parts masked.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.dynamics.tagging import TaggingData
from bertwright.core.significance import FloatArray
from bertwright.encoder.encoder import Encoder
from bertwright.modules.token_tensors import TokenInfo
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import TaggedSentence
from bertwright.training.callbacks.callback import Callback
from bertwright.training.clock import Progress

BoolArray = NDArray[np.bool_]

HEADS_TAP, FEED_FORWARD_TAP = "attention.context", "feed_forward.output"

PRUNED_FRACTION_PER_STEP = 0.1
"""Fraction of heads pruned per step, in addition to one feed-forward layer."""

MIN_SCORE_FRACTION = 0.9
"""Pruning stops below this fraction of the full model's score."""

MAX_SENTENCES = 24
"""Number of sentences for the importance estimate."""


@dataclass(frozen=True)
class PruningMask:
    """The heads (layers, H) and feed-forward layers (layers,) to keep."""

    heads: BoolArray
    feed_forwards: BoolArray

    @staticmethod
    def full(model: AnalysedModel) -> "PruningMask":
        """Return the mask that keeps everything."""
        shape = model.num_layers, model.num_heads
        return PruningMask(np.ones(shape, np.bool_), np.ones(shape[0], np.bool_))

    @property
    def kept_head_fraction(self) -> float:
        """Fraction of heads that are kept."""
        return float(self.heads.mean())

    def sample_like(self, generator: np.random.Generator, prefer_removed: bool) -> "PruningMask":
        """Sample a mask of the same size from all parts, or from the removed parts first."""
        return PruningMask(
            *(
                _sample_like(kept, generator, prefer_removed)
                for kept in (self.heads, self.feed_forwards)
            )
        )

    def gate(self, encoder: Encoder) -> AbstractContextManager[None]:
        """Disable the removed parts of an encoder within the context."""
        heads, feed_forwards = (torch.from_numpy(part) for part in (self.heads, self.feed_forwards))
        return encoder.gate(_gates(heads, feed_forwards))


def _sample_like(
    kept: BoolArray, generator: np.random.Generator, prefer_removed: bool
) -> BoolArray:
    order = generator.permutation(kept.size)
    if prefer_removed:
        order = order[np.argsort(kept.ravel()[order], kind="stable")]
    mask = np.zeros(kept.size, np.bool_)
    mask[order[: kept.sum()]] = True
    return mask.reshape(kept.shape)


def _gates(heads: Tensor, feed_forwards: Tensor) -> dict[str, Tensor]:
    gates = {f"blocks.{n}.{HEADS_TAP}": gate[:, None, None] for n, gate in enumerate(heads)}
    return gates | {f"blocks.{n}.{FEED_FORWARD_TAP}": gate for n, gate in enumerate(feed_forwards)}


def prune_least_important(
    model: AnalysedModel, fine_tuned: FineTunedModel, tagging: TaggingData
) -> PruningMask:
    """Prune the least important parts step by step while the validation score is high enough.

    It must stay above nine tenths of the full score (section 3.2) and above the majority class: a
    model without heads can keep nine tenths.
    """
    mask, encoder = PruningMask.full(model), fine_tuned.task_model.encoder
    min_score = MIN_SCORE_FRACTION * _accuracy(fine_tuned, tagging.validation)
    while mask.heads.any():
        heads, feed_forwards = part_importances(fine_tuned, tagging.train[:MAX_SENTENCES], mask)
        pruned = PruningMask(
            _remove_least_important(
                mask.heads, heads, max(1, round(PRUNED_FRACTION_PER_STEP * mask.heads.size))
            ),
            _remove_least_important(mask.feed_forwards, feed_forwards, 1),
        )
        with pruned.gate(encoder):
            score = _accuracy(fine_tuned, tagging.validation)
            if score < min_score or score <= tagging.validation_majority_fraction:
                return mask
        mask = pruned
    return mask


def part_importances(
    fine_tuned: FineTunedModel, sentences: Sequence[TaggedSentence], mask: PruningMask
) -> tuple[FloatArray, FloatArray]:
    """Return the mean absolute gradients of the loss with respect to the gates of all parts.

    The parts are heads (layers, H), normalised by layer, and feed-forward layers (layers,).
    """
    model, decoder, device = fine_tuned.task_model, fine_tuned.output_decoder, fine_tuned.device
    values = (torch.from_numpy(part).float() for part in (mask.heads, mask.feed_forwards))
    gates = [value.to(device).requires_grad_() for value in values]
    sums = [torch.zeros_like(gate) for gate in gates]
    sequences = decoder.encode(fine_tuned.example_encoder, sentences)
    for sequence in sequences:
        tokens = torch.tensor([sequence.token_ids], device=device)
        labels = decoder.targets([sequence], sentences[sequence.example_index])
        target = torch.tensor(labels, device=device)
        with torch.enable_grad(), model.encoder.gate(_gates(*gates)):
            token_info = TokenInfo.from_token_ids(tokens)
            logits = model(tokens, token_info, tokens.new_tensor(sequence.positions))
            gradients = torch.autograd.grad(F.cross_entropy(logits, target.long()), gates)
        for total, gradient in zip(sums, gradients, strict=True):
            total += gradient.abs() / len(sequences)
    heads, feed_forwards = (total.double().cpu().numpy() for total in sums)
    norms = np.linalg.norm(heads, axis=1, keepdims=True)
    return heads / np.maximum(norms, 1e-12), feed_forwards


def _remove_least_important(kept: BoolArray, importance: FloatArray, num_removed: int) -> BoolArray:
    rest = kept.copy()
    order = np.argsort(np.where(kept, importance, np.inf), axis=None, kind="stable")
    rest.ravel()[order[: min(num_removed, int(kept.sum()))]] = False
    return rest


def _accuracy(fine_tuned: FineTunedModel, sentences: Sequence[TaggedSentence]) -> float:
    predictions = [prediction.value for prediction in fine_tuned.predict(sentences)]
    accuracy = fine_tuned.task.output_type.metric("accuracy")
    return accuracy([sentence.tags for sentence in sentences], predictions)


class PruningProcedure(Callback):
    """A callback that keeps the output weights of pruned parts at 0 in training.

    Trained parameters are float32.
    """

    name = "pruning-mask"

    def __init__(self, encoder: Encoder, mask: PruningMask) -> None:
        self._gated_parameters = [*_gated_parameters(encoder, mask)]

    def before_step(self, progress: Progress) -> None:
        self.after_update(progress)

    @torch.no_grad()
    def after_update(self, progress: Progress) -> None:
        for parameter, kept in self._gated_parameters:
            parameter.mul_(kept)


def _gated_parameters(encoder: Encoder, mask: PruningMask) -> list[tuple[nn.Parameter, Tensor]]:
    """Return the output parameters of heads and feed-forward layers with their 0/1 factors."""
    gated: list[tuple[nn.Parameter, Tensor]] = []
    for layer, block in enumerate(encoder.blocks):
        parameters = dict(block.named_parameters())
        weight = parameters["sublayers.attention.output.weight"]
        heads = torch.from_numpy(mask.heads[layer]).to(weight)
        gated.append((weight, heads.repeat_interleave(weight.shape[1] // len(heads))))
        feed_forward = torch.tensor(float(mask.feed_forwards[layer]))
        for name in ("weight", "bias"):
            if (parameter := parameters.get(f"sublayers.feed_forward.down.{name}")) is not None:
                gated.append((parameter, feed_forward))
    return gated


def missing_prunable_parts(inputs: AnalysisInput) -> str | None:
    """Require heads and feed-forward layers that can be pruned individually."""
    required = {"sublayers.attention.output.weight", "sublayers.feed_forward.down.weight"}
    blocks = list(inputs.model.encoder.blocks)
    if not all(required <= dict(block.named_parameters()).keys() for block in blocks):
        return "its blocks are not made of attention and feed-forward layers alone"
    weights = [dict(b.named_parameters())["sublayers.attention.output.weight"] for b in blocks]
    if len({id(weight) for weight in weights}) < len(weights):
        return "its blocks share their parameters: none can be pruned alone"
    return inputs.model.missing_taps(f"blocks.*.{HEADS_TAP}")
