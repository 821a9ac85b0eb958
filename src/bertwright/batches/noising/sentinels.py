"""Span corruption: each span becomes a sentinel (Raffel et al. 2020, 3.1.4)."""

from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.batches.masking import PartitionSelection
from bertwright.batches.masking.selection import starts_unit
from bertwright.batches.noising.noising import Noising, replace_text, require_single_text
from bertwright.batches.targets import Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng


class Sentinels(Noising):
    """Each masked span becomes one sentinel token.

    The targets are each sentinel followed by its span, then a last sentinel and the end token. The
    ``number`` sentinels are the last ids of the vocabulary, counted from the end. If the tokenizer
    does not reserve them (``text.tokenizer.sentinels``), these ids are its rarest tokens.
    """

    kind: Literal["sentinels"] = "sentinels"
    selection: PartitionSelection = PartitionSelection()
    number: int = Field(default=100, ge=2, le=65_536)

    @property
    def mid_training_masking_rate(self) -> float:
        return self.selection.masking_rate.at(0.5)

    def num_targets(self, length: int) -> int:
        slots = self.selection.num_slots(length)
        return slots + self.selection.num_spans(slots) + 2

    def add_noise(
        self, batch: SequenceBatch, vocabulary: Vocabulary, rng: CounterRng, progress: float
    ) -> tuple[SequenceBatch, Targets]:
        require_single_text(batch)
        num_sequences, length = batch.token_ids.shape
        selected = self.selection.select(batch, vocabulary, rng.fold_in("selection"), progress)
        is_masked = selected.weights > 0
        is_span_start = is_masked & starts_unit(selected.unit_ids)
        span_ids = np.cumsum(is_span_start, axis=1) - 1
        num_spans, num_masked = is_span_start.sum(axis=1), is_masked.sum(axis=1)
        if num_spans.max(initial=0) >= self.number:
            raise UserError(
                f"objectives.denoising.noising.number is {self.number}, and a sequence has "
                f"{num_spans.max()} spans: raise it, or set a smaller assembly.length"
            )
        sequence, slot = np.nonzero(is_masked)
        starts_span = is_span_start[sequence, slot]
        position = selected.positions[sequence, slot]
        sentinels = vocabulary.token_ids[-1 - span_ids[sequence, slot]]

        is_kept = batch.is_real.copy()
        is_kept[sequence, position] = starts_span
        token_ids = batch.token_ids.astype(np.int64)
        token_ids[sequence[starts_span], position[starts_span]] = sentinels[starts_span]
        source_positions = np.argsort(~is_kept, axis=1, kind="stable")
        is_real = np.arange(length) < is_kept.sum(axis=1, keepdims=True)
        shown_ids = np.where(
            is_real, np.take_along_axis(token_ids, source_positions, 1), vocabulary.specials.pad
        )
        new_positions = np.cumsum(is_kept, axis=1) - 1

        num_targets = self.num_targets(length)
        target_ids = np.full((num_sequences, num_targets), vocabulary.specials.pad, np.int64)
        target_positions = np.zeros((num_sequences, num_targets), np.int64)
        columns = slot + span_ids[sequence, slot] + 1
        sequences = np.arange(num_sequences)
        num_before_end = num_masked + num_spans
        target_ids[sequence, columns] = batch.token_ids[sequence, position]
        target_ids[sequence[starts_span], columns[starts_span] - 1] = sentinels[starts_span]
        target_ids[sequences, num_before_end] = vocabulary.token_ids[-1 - num_spans]
        target_ids[sequences, num_before_end + 1] = vocabulary.specials.end
        target_positions[sequence, columns] = new_positions[sequence, position]
        target_positions[sequence[starts_span], columns[starts_span] - 1] = new_positions[
            sequence, position
        ][starts_span]
        last_position = is_kept.sum(axis=1) - 1
        target_positions[sequences, num_before_end] = target_positions[
            sequences, num_before_end + 1
        ] = np.maximum(last_position, 0)
        noised = replace_text(batch, shown_ids, source_positions, is_real)
        return noised, self.make_targets(
            noised,
            vocabulary,
            (int(num_masked.sum()), int(batch.is_real.sum())),
            token_ids=target_ids,
            is_real=np.arange(num_targets) < num_before_end[:, None] + 2,
            source_positions=target_positions,
        )
