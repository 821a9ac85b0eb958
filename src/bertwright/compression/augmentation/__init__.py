"""From texts to more texts that are much like them."""

from bertwright.compression.augmentation.augmentation import (
    Augmentation,
    Augmenter,
    Given,
    augmented,
    texts_of,
)
from bertwright.compression.augmentation.masked import ByMaskedModel
from bertwright.compression.augmentation.words import ByWords

__all__ = [
    "Augmentation",
    "Augmenter",
    "ByMaskedModel",
    "ByWords",
    "Given",
    "augmented",
    "texts_of",
]
