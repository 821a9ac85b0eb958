"""Scoring predictions for texts with a trigger in front."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.prediction_probe import (
    ClassificationProbe,
    MaskedLMProbe,
    PredictionProbe,
    PredictionScores,
    class_names,
    is_classifier,
    missing_predictions,
    target_classes,
)
from bertwright.analysis.core.texts import AnalysedText, encode_texts

TriggerTokens = tuple[int, ...]

MASKED_TOKENS = "masked tokens"
"""Stands for the class of a language model."""

MIN_TEXTS_PER_CLASS = 4
"""Smallest number of texts of a class to search a trigger for."""


@dataclass(frozen=True)
class TriggerProbe:
    """Texts and their target classes; without classes masked tokens are the targets."""

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
    """Return the texts, truncated where they would be too long with the trigger."""
    longest = model.encoder.max_length
    if longest is None or max(map(len, texts)) + trigger_length <= longest:
        return texts
    return encode_texts(model, [text.source for text in texts], longest - trigger_length)


def prepend_trigger(trigger: TriggerTokens, text: AnalysedText) -> AnalysedText:
    """Insert a trigger behind the opening token; its tokens belong to no word."""
    positions = [1] * len(trigger)
    return replace(
        text,
        token_ids=[text.token_ids[0], *trigger, *text.token_ids[1:]],
        segment_ids=[0] * len(trigger) + text.segment_ids,
        word_ids=np.insert(text.word_ids, positions, -1),
        category_masks={
            category: np.insert(mask, positions, False)
            for category, mask in text.category_masks.items()
        },
    )


def missing_trigger_predictions(model: AnalysedModel) -> str | None:
    """Return why predictions with a trigger cannot be scored, or None."""
    if not is_classifier(model) and model.text_model.is_causal:
        return "it needs a classifier or a masked language model"
    return missing_predictions(model)


def is_transferable(model: AnalysedModel, other_model: AnalysedModel) -> bool:
    """Return True if both models have the same classes and can be scored."""
    return missing_trigger_predictions(other_model) is None and set(class_names(model)) == set(
        class_names(other_model)
    )


def probes_by_class(
    model: AnalysedModel, texts: Sequence[AnalysedText], seed: int
) -> Mapping[str, TriggerProbe]:
    """Return a probe for every class with enough texts; for all texts without classes."""
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
