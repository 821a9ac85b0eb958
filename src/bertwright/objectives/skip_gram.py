"""Skip-gram with negative sampling (Mikolov et al. 2013)."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from bertwright.batches.arrays import IntArray
from bertwright.batches.context_pairs import context_pairs
from bertwright.batches.targets import BatchWithTargets, Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.encoder.config import EncoderConfig
from bertwright.modules.attention.mask import Visibility
from bertwright.modules.embedding_lookup import embedding_lookup, empty_embedding
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.model_output import DeviceTargets, Loss, ModelOutput
from bertwright.objectives.objective import HeadContext, MaskingContext, Objective


class SkipGram(Objective):
    """Tell the words near a word from noise words.

    A pair of a centre v and a context u has the loss -log s(u v) - k E[log s(-n v)], where s is the
    sigmoid, k is ``negatives``, and n are noise words, drawn by their frequency to the power
    ``noise_power``. The expectation is the mean over one noise word for each position of the
    sequence. A window extends up to ``window`` words to both sides, and closer words are paired
    more often, as if its size were drawn from 1 to ``window``. Of a word with frequency f,
    1 - sqrt(t / f) of the occurrences are discarded, where t is ``subsampling``; 0 discards none.
    """

    kind: Literal["skip-gram"] = "skip-gram"
    window: int = Field(default=5, ge=1, le=256)
    negatives: int = Field(default=5, ge=1, le=65_536)
    noise_power: float = Field(default=0.75, ge=0.0, le=1.0)
    subsampling: float = Field(default=1e-3, ge=0.0, lt=1.0)

    capabilities: ClassVar[Capabilities] = Capabilities(is_classification=False)

    @property
    def visibility(self) -> Visibility | None:
        return None

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        rng = context.rng.fold_in("skip-gram")
        settings = self.window, self.subsampling, self.noise_power
        return batch, context_pairs(batch, context.vocabulary, rng, *settings)

    def label_positions(self, targets: Targets) -> IntArray:
        return targets.extra_inputs["context_positions"]

    def describe_extra_inputs(
        self, extra_inputs: Mapping[str, int], token_name: Callable[[int], str]
    ) -> dict[str, int | str]:
        return {**extra_inputs, "noise_ids": token_name(extra_inputs["noise_ids"])}

    def build_head(self, context: HeadContext) -> nn.Module:
        return ContextVectors(context.vocab_size, context.encoder_config.width)

    def head_flops(
        self, encoder: EncoderConfig, vocab_size: int, length: int, group: Mapping[str, Objective]
    ) -> float:
        return 2 * 2 * length * encoder.width

    def compute_loss(
        self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None
    ) -> Loss:
        assert isinstance(head, ContextVectors)
        num_sequences, length = output.token_ids.shape
        # The noise word of a centre is repeated for all its pairs.
        noise_ids = targets.extra_inputs["noise_ids"].view(num_sequences, length, -1)[..., 0]
        pair_scores, noise_scores = score_pairs(
            output.hidden_states, head(output.token_ids), head(noise_ids)
        )
        pairs = targets.positions * length + targets.extra_inputs["context_positions"] % length
        scores = pair_scores.flatten().index_select(0, pairs)
        # A word is predicted correctly if it scores higher than the noise word of its centre.
        is_correct = scores > noise_scores.diagonal(dim1=1, dim2=2).flatten()[targets.positions]
        noise_losses = F.softplus(noise_scores).mean(-1).flatten()
        losses = F.softplus(-scores) + self.negatives * noise_losses[targets.positions]
        return targets.score(losses, is_correct)


def score_pairs(centres: Tensor, contexts: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores (B, L, L) of all centres with all contexts and noise words of a sequence.

    The arguments are vectors (B, L, D); all words of a sequence share its noise words.
    """
    return torch.bmm(centres, contexts.mT).float(), torch.bmm(centres, noise.mT).float()


class ContextVectors(nn.Module):
    """The vectors of words as contexts, which only training needs."""

    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        self.words = empty_embedding(vocab_size, width)

    def forward(self, token_ids: Tensor) -> Tensor:
        """Return the context vectors (..., D) of token_ids (...) int64."""
        return embedding_lookup(self.words.weight, token_ids)
