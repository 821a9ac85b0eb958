"""Search for adversarial triggers by gradients of the loss with respect to token embeddings.

Wallace et al. (2019, section 2.2).
"""

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.behaviour.triggers.trigger_probe import TriggerProbe, TriggerTokens
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import AnalysedText
from bertwright.models.text_batches import TextBatch

TOKEN_EMBEDDINGS_TAP = "embeddings.tokens"
"""Token embeddings, before anything is added to them."""


def trigger_gradient(probe: TriggerProbe, trigger: TriggerTokens) -> Tensor:
    """Return the gradient of the mean loss with respect to the trigger's embeddings, (k, E)."""
    inputs: list[Tensor] = []

    def replace_embeddings(embeddings: Tensor) -> Tensor:
        inputs[:] = [embeddings.detach().requires_grad_()]
        return inputs[0]

    def within(batch: TextBatch) -> AbstractContextManager[None]:
        return probe.model.encoder.replace(TOKEN_EMBEDDINGS_TAP, replace_embeddings)

    sums: list[Tensor] = []
    total = 0.0
    with torch.enable_grad():
        for _, loss, _, num_targets in probe.with_trigger(trigger).scored_batches(within):
            (gradient,) = torch.autograd.grad(loss.sum(), inputs)
            sums.append(gradient[:, 1 : 1 + len(trigger)].sum(0))
            total += float(num_targets.sum())
    return torch.stack(sums).sum(0) / total


@torch.no_grad()
def token_embedding_matrix(model: AnalysedModel) -> Tensor:
    """Return the embeddings of all tokens, (V, E)."""
    token_ids = torch.arange(model.tokenizer.vocab_size, device=model.text_model.device)
    return model.encoder.embeddings.tokens(token_ids)


def first_order_scores(
    probe: TriggerProbe, trigger: TriggerTokens, token_embeddings: Tensor
) -> Tensor:
    """Estimate the loss increase for every replacement of each trigger token, (k, V)."""
    gradient = trigger_gradient(probe, trigger)
    current = (gradient * token_embeddings[list(trigger)]).sum(-1, keepdim=True)
    return gradient @ token_embeddings.T - current


@dataclass(frozen=True)
class TriggerSearch:
    """A greedy search: for each position the tokens with the best first-order scores are tried.

    Attributes:
        token_embeddings: (V, E).
        allowed: Tokens that a trigger may contain, (V,) bool.
    """

    token_embeddings: Tensor
    allowed: Tensor
    num_candidates: int

    def step(self, probe: TriggerProbe, trigger: TriggerTokens) -> TriggerTokens:
        """Return a trigger with a higher loss on these texts, or the same one."""
        scores = first_order_scores(probe, trigger, self.token_embeddings)
        scores = scores.masked_fill(~self.allowed, -torch.inf)
        number = min(self.num_candidates, int(self.allowed.sum()))
        best, highest = trigger, probe.evaluate(trigger).mean_loss
        for position, candidates in enumerate(scores.topk(number).indices.tolist()):
            for token in candidates:
                candidate = (*best[:position], token, *best[position + 1 :])
                loss = probe.evaluate(candidate).mean_loss
                if loss > highest:
                    best, highest = candidate, loss
        return best

    def sample_trigger(self, length: int, generator: np.random.Generator) -> TriggerTokens:
        """Sample a trigger of random allowed tokens."""
        tokens: NDArray[np.int64] = generator.choice(self.allowed.nonzero()[:, 0].cpu(), length)
        return tuple(tokens.tolist())


def allowed_tokens(model: AnalysedModel, excluded_words: Collection[str] = ()) -> Tensor:
    """Return the tokens that can be written, (V,) bool.

    Without special and unused tokens, parts of characters, and ``excluded_words``.
    """
    tokenizer = model.tokenizer
    allowed = torch.zeros(tokenizer.vocab_size, dtype=torch.bool)
    for token in tokenizer.ids.tolist():
        text = tokenizer.decode([token]).strip().lower()
        unwritable = not text or "\ufffd" in text or text.startswith(("[unused", "<extra_id_"))
        allowed[token] = not unwritable and text not in excluded_words
    allowed[list(tokenizer.special_tokens.all)] = False
    return allowed.to(model.text_model.device)


def most_frequent_token(texts: Sequence[AnalysedText], search: TriggerSearch) -> int:
    """Return the most frequent allowed token of the texts; the first allowed one if none occurs."""
    counts = Counter(token for text in texts for token in text.token_ids if search.allowed[token])
    first = int(search.allowed.nonzero()[0])
    return min(counts, key=lambda token: (-counts[token], token), default=first)
