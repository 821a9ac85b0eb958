"""The noising axis, and the decoder targets.

To keep shapes constant, noised sequences keep their length L, and every sequence has T targets,
padded with weight 0.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from bertwright.batches.arrays import BoolArray, IntArray
from bertwright.batches.targets import Targets
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.config import Config
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from bertwright.data.tokenization.tokenizer import SpecialTokens


class Noising(Config):
    """A corruption of a text; ``begins`` is the special token that starts the decoder input."""

    begins: Literal["pad", "start", "end", "mask"] = "pad"

    permutes_input: ClassVar[bool] = True
    """True if tokens that are not masked may change their positions."""

    @property
    def mid_training_masking_rate(self) -> float | None:
        """Return the fraction of a text masked halfway through training; None if none is."""
        return None

    def add_noise(
        self, batch: SequenceBatch, vocabulary: Vocabulary, rng: CounterRng, progress: float
    ) -> tuple[SequenceBatch, Targets]:
        """Return the noised sequences and the targets of the decoder.

        ``extra_inputs`` of the targets holds ``decoder_input_ids``, the token before each target;
        ``decoder_position_ids`` unless they are 0 to T-1; and ``decoder_language_ids`` if known.
        """
        raise TypeError(f"{type(self).__name__} is an axis, not a noising")

    def num_targets(self, length: int) -> int:
        """Return T, the number of targets of a sequence of this length."""
        raise TypeError(f"{type(self).__name__} is an axis, not a noising")

    def num_positions(self, length: int) -> int:
        """Return the number of possible target positions for sequences of this length."""
        return self.num_targets(length)

    def first_position(self, source_ids: Sequence[int], specials: SpecialTokens) -> int:
        """Return the position of the first target of a text that is already noised."""
        return 0

    def make_targets(
        self,
        noised: SequenceBatch,
        vocabulary: Vocabulary,
        masked_counts: tuple[int, int],
        token_ids: IntArray,
        is_real: BoolArray,
        source_positions: IntArray,
        position_ids: IntArray | None = None,
        is_unscored: BoolArray | None = None,
    ) -> Targets:
        """Return the targets, each predicted from those before it; arrays are (B, T).

        Padding, where ``is_real`` is False, comes last. ``source_positions`` are the corresponding
        positions in the noised sequence; ``position_ids`` are positions in the text, None for 0 to
        T-1. ``is_unscored`` marks decoder inputs that are not predicted.
        """
        start_id = getattr(vocabulary.specials, self.begins)
        input_ids = np.full_like(token_ids, start_id)
        input_ids[:, 1:] = np.where(is_real, token_ids, start_id)[:, :-1]
        extra_inputs = {"decoder_input_ids": input_ids.ravel()}
        if position_ids is not None:
            extra_inputs["decoder_position_ids"] = position_ids.ravel()
        if noised.token_info.language_ids is not None:
            language_ids = np.take_along_axis(
                noised.token_info.language_ids, source_positions, axis=1
            )
            extra_inputs["decoder_language_ids"] = language_ids.astype(np.int64).ravel()
        num_sequences, length = noised.token_ids.shape
        flat_positions = source_positions + length * np.arange(num_sequences)[:, None]
        weights = (is_real if is_unscored is None else is_real & ~is_unscored).astype(np.float32)
        return Targets(
            flat_positions.ravel(), token_ids.ravel(), weights.ravel(), extra_inputs, masked_counts
        )


def replace_text(
    batch: SequenceBatch, token_ids: IntArray, source_positions: IntArray, is_real: BoolArray
) -> SequenceBatch:
    """Return sequences with new token ids (B, L), which come from ``source_positions`` (B, L).

    Padding is where ``is_real`` (B, L) is False. Word, sentence and position ids are dropped.
    """
    language_ids = batch.token_info.language_ids
    if language_ids is not None:
        language_ids = np.take_along_axis(language_ids, source_positions, axis=1)
    document_ids = np.where(is_real, np.int32(0), np.int32(-1))
    return replace(
        batch,
        token_ids=token_ids.astype(np.int32),
        token_info=TokenInfoArrays(document_ids=document_ids, language_ids=language_ids),
        is_special=np.take_along_axis(batch.is_special, source_positions, axis=1) | ~is_real,
        is_truncation_boundary=None,
    )


def require_single_text(batch: SequenceBatch) -> None:
    """Raise UserError if sequences hold more than one text."""
    if batch.relation is not None:
        raise UserError(
            "objectives.denoising corrupts single texts: set assembly.kind to one without pairs"
        )
