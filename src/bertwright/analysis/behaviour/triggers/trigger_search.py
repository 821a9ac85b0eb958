"""Predictions with a trigger in front of texts, and a gradient search for adversarial triggers.

Wallace et al. (2019, section 2.2).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.prediction_probe import (
    ClassificationProbe,
    MaskedLMProbe,
    PredictionProbe,
    PredictionScores,
    class_names,
    is_classifier,
    target_classes,
)
from bertwright.analysis.core.requirements import missing_predictions
from bertwright.analysis.core.texts import AnalysedText, encode_texts
from bertwright.models.text_batches import TextBatch

TriggerTokens = tuple[int, ...]

MASKED_TOKENS = "masked tokens"
"""Placeholder for a class, in a language model."""

MIN_TEXTS_PER_CLASS = 4
"""Minimum number of texts of a class to search a trigger for."""


@dataclass(frozen=True)
class TriggerProbe:
    """Texts and their target classes; without classes, masked tokens are the targets."""

    model: AnalysedModel
    texts: Sequence[AnalysedText]
    labels: Sequence[int] | None
    seed: int

    def select(self, text_indices: Sequence[int]) -> "TriggerProbe":
        """Select some of the texts."""
        labels = None if self.labels is None else [self.labels[n] for n in text_indices]
        texts = [self.texts[n] for n in text_indices]
        return replace(self, texts=texts, labels=labels)

    def with_trigger(self, trigger: TriggerTokens) -> PredictionProbe:
        """Return the probe with the trigger in front of every text."""
        texts = [prepend_trigger(trigger, text) for text in self.texts]
        if self.labels is None:
            return MaskedLMProbe(self.model, texts, self.seed)
        return ClassificationProbe(self.model, texts, self.seed, self.labels)

    def evaluate(self, trigger: TriggerTokens) -> PredictionScores:
        """Score the model with the trigger."""
        return self.with_trigger(trigger).evaluate()

    def transfer(
        self, trigger: TriggerTokens, other_model: AnalysedModel
    ) -> tuple[TriggerTokens, "TriggerProbe"]:
        """Re-encode trigger, texts and labels for another model with the same classes."""
        new_trigger = other_model.tokenizer.encode(self.model.tokenizer.decode(list(trigger)))
        sources, longest = [text.source for text in self.texts], max(map(len, self.texts))
        texts = truncate_for_trigger(
            other_model, encode_texts(other_model, sources, longest), len(new_trigger)
        )
        names, other_names = class_names(self.model), class_names(other_model)
        labels = None if self.labels is None else [other_names.index(names[n]) for n in self.labels]
        return tuple(new_trigger), replace(self, model=other_model, texts=texts, labels=labels)


def truncate_for_trigger(
    model: AnalysedModel, texts: Sequence[AnalysedText], trigger_length: int
) -> Sequence[AnalysedText]:
    """Return the texts, truncated if they would be too long with the trigger."""
    longest = model.encoder.max_length
    if longest is None or max(map(len, texts)) + trigger_length <= longest:
        return texts
    return encode_texts(model, [text.source for text in texts], longest - trigger_length)


def prepend_trigger(trigger: TriggerTokens, text: AnalysedText) -> AnalysedText:
    """Insert a trigger before the first word; its tokens belong to no word."""
    start = int((text.word_ids >= 0).argmax())
    positions = [start] * len(trigger)
    return replace(
        text,
        token_ids=[*text.token_ids[:start], *trigger, *text.token_ids[start:]],
        segment_ids=[0] * len(trigger) + text.segment_ids,
        word_ids=np.insert(text.word_ids, positions, -1),
        category_masks={
            category: np.insert(mask, positions, False)
            for category, mask in text.category_masks.items()
        },
    )


def missing_trigger_predictions(inputs: AnalysisInput) -> str | None:
    """Require predictions that can be scored with a trigger in front of the text."""
    if not is_classifier(inputs.model) and inputs.model.text_model.is_causal:
        return "it needs a classifier or a masked language model"
    return missing_predictions(inputs)


def is_transferable(inputs: AnalysisInput, other_model: AnalysedModel) -> bool:
    """Return True if another model has the same classes and can be scored."""
    same_classes = set(class_names(inputs.model)) == set(class_names(other_model))
    return same_classes and missing_trigger_predictions(replace(inputs, model=other_model)) is None


def probes_by_class(
    model: AnalysedModel, texts: Sequence[AnalysedText], seed: int
) -> Mapping[str, TriggerProbe]:
    """Return a probe for every class with enough texts; a single one if there are no classes."""
    labels = class_names(model)
    if not labels:
        return {MASKED_TOKENS: TriggerProbe(model, texts, None, seed)}
    targets = target_classes(model, texts)
    probe = TriggerProbe(model, texts, targets, seed)
    indices = {label: np.flatnonzero(np.array(targets) == n) for n, label in enumerate(labels)}
    return {
        label: probe.select(of_class.tolist())
        for label, of_class in indices.items()
        if len(of_class) >= MIN_TEXTS_PER_CLASS
    }


TOKEN_EMBEDDINGS_TAP = "embeddings.tokens"
"""Token embeddings before anything is added to them."""


def trigger_gradient(probe: TriggerProbe, trigger: TriggerTokens) -> Tensor:
    """Return the gradient of the mean loss with respect to the trigger embeddings, (k, E)."""
    inputs: list[Tensor] = []

    def replace_embeddings(embeddings: Tensor) -> Tensor:
        inputs[:] = [embeddings.detach().requires_grad_()]
        return inputs[0]

    def within(batch: TextBatch) -> AbstractContextManager[None]:
        return probe.model.encoder.replace(TOKEN_EMBEDDINGS_TAP, replace_embeddings)

    start = probe.model.text_model.model.recipe.assembly.text_start
    sums: list[Tensor] = []
    total = 0.0
    with torch.enable_grad():
        for _, loss, _, num_targets in probe.with_trigger(trigger).scored_batches(within):
            (gradient,) = torch.autograd.grad(loss.sum(), inputs)
            sums.append(gradient[:, start : start + len(trigger)].sum(0))
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
    """A greedy search that tries the tokens with the best first-order scores at each position.

    Attributes:
        token_embeddings: (V, E).
        allowed: True for tokens that a trigger may contain, (V,) bool.
    """

    token_embeddings: Tensor
    allowed: Tensor
    num_candidates: int

    def step(self, probe: TriggerProbe, trigger: TriggerTokens) -> TriggerTokens:
        """Return a trigger with a higher loss on these texts; the same one if none is found."""
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
    """Return which tokens can be written in a text, (V,) bool.

    Special and unused tokens, parts of characters, and ``excluded_words`` are excluded.
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
