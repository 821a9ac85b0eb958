"""Augmentation of texts."""

from bertwright.compression.distillation.augmentation.augmentation import (
    Augmentation,
    AugmentationFunction,
    AugmentationInputs,
    augment_examples,
    augmentable_texts,
)
from bertwright.compression.distillation.augmentation.masked_lm import MaskedLMAugmentation
from bertwright.compression.distillation.augmentation.words import WordAugmentation

__all__ = [
    "Augmentation",
    "AugmentationFunction",
    "AugmentationInputs",
    "MaskedLMAugmentation",
    "WordAugmentation",
    "augment_examples",
    "augmentable_texts",
]
