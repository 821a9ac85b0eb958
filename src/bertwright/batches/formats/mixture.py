"""Several input formats and languages in one run.

The sequences of a step are a function of the step. Turns are grouped into rounds: every source has
a fixed number of turns in a round, in random order. With its turns, a source goes through its
sequences epoch by epoch, in a new order each time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator, model_validator

from bertwright.batches.arrays import BoolArray, FloatArray, Int32Array, IntArray
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.token_info import DataRequirement, Relation, SequenceBatch, TokenInfoArrays
from bertwright.core.errors import UserError
from bertwright.core.rng import Counters, RandomPermutation, permute_by_epoch, stream_key
from bertwright.data.languages import smooth_fractions
from bertwright.data.shards.dataset import Split
from bertwright.data.shards.subset import split_by_language, split_by_language_pair
from bertwright.data.tokenization.tokenizer import SpecialTokens

STEPS_PER_ROUND = 10_000
"""Steps per round with one source per step, which determines the resolution of the weights."""


class Mixture(InputFormat):
    """A mixture of several input formats, ``parts`` by name, all at this format's length.

    ``weights`` are the relative frequencies of the parts (default: equal). With ``alpha``, each
    language of a part (pair of languages, for translations) is a separate source, sampled by its
    fraction of the part's sequences raised to ``alpha`` (Lample and Conneau 2019, section 3.1, who
    count sentences). 1 is proportional; a smaller ``alpha`` upsamples small languages. Languages
    with too little text for one sequence are left out; ``languages`` restricts them further. If
    ``alike``, all sequences of a step come from one part and language, as in XLM; otherwise each is
    drawn independently, as in XLM-R.
    """

    kind: Literal["mixture"] = "mixture"
    parts: dict[str, InputFormat] = Field(min_length=1)
    weights: dict[str, float] = Field(default_factory=dict[str, float])
    alpha: float | None = Field(default=None, ge=0.0, le=1.0)
    languages: tuple[str, ...] = ()
    alike: bool = False

    @field_validator("parts")
    @classmethod
    def _check_parts(
        cls, parts: dict[str, InputFormat], info: ValidationInfo
    ) -> dict[str, InputFormat]:
        for name, part in parts.items():
            if isinstance(part, Mixture) or part.is_sequential or part.num_directions > 1:
                raise ValueError(
                    f"{name} is {part.kind}, whose sequences must stay in order: choose "  # type: ignore[attr-defined]
                    f"another input format"
                )
        length = {"length": info.data.get("length", 128)}
        return {name: part.model_copy(update=length) for name, part in parts.items()}

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if self.weights and (
            self.weights.keys() != self.parts.keys() or min(self.weights.values()) <= 0
        ):
            raise ValueError(
                f"weights needs a positive number for each of: {', '.join(self.parts)}"
            )
        if self.languages and self.alpha is None:
            raise ValueError("languages needs alpha, their sampling exponent (1: proportional)")
        return self

    @property
    def data_requirements(self) -> frozenset[DataRequirement]:
        requirements = frozenset[DataRequirement](() if self.alpha is None else {"languages"})
        return requirements.union(*(part.data_requirements for part in self.parts.values()))

    @property
    def relations(self) -> frozenset[Relation]:
        part_relations = [part.relations for part in self.parts.values()]
        return frozenset[Relation]().union(*part_relations) if all(part_relations) else frozenset()

    @property
    def isolation_setting(self) -> str | None:
        return next((key for part in self.parts.values() if (key := part.isolation_setting)), None)

    @property
    def for_evaluation(self) -> "Mixture":
        return self.model_copy(
            update={"parts": {n: p.for_evaluation for n, p in self.parts.items()}}
        )

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> "MixedSequences":
        sources: list[SequenceSource] = []
        weights: list[float] = []
        labels: list[str] = []
        for name, part in self.parts.items():
            sized = part.model_copy(update={"length": self.length})
            part_sources = self._plan_part(sized, name, split, specials, seed)
            sources += part_sources.values()
            labels += part_sources
            part_weight = self.weights.get(name, 1.0)
            sizes = [source.num_sequences for source in part_sources.values()]
            exponent = 1.0 if self.alpha is None else self.alpha
            weights += [part_weight * fraction for fraction in smooth_fractions(sizes, exponent)]
        bounds = np.append(0, np.cumsum([source.num_sequences for source in sources]))
        return MixedSequences(
            int(bounds[-1]),
            partial(_mixed_sequences, sources, bounds, self.length),
            tuple(sources),
            bounds,
            np.array(weights),
            tuple(labels),
            self.alike,
        )

    def _plan_part(
        self, part: InputFormat, name: str, split: Split, specials: SpecialTokens, seed: int
    ) -> dict[str, SequenceSource]:
        """Return the sources of one part by name; one for each language if ``alpha`` is set."""
        if self.alpha is None:
            return {name: part.plan(split, specials, seed)}
        if split.language_ids is None:
            raise UserError(
                "assembly.alpha samples by language, but the data set has no languages: prepare it "
                "with en=FILE or --language-column"
            )
        unknown_languages = set(self.languages).difference(split.language_names)
        if unknown_languages:
            raise UserError(
                f"assembly.languages: the data set has no {min(unknown_languages)}, but "
                f"{', '.join(sorted(split.language_names))}"
            )
        sources: dict[str, SequenceSource] = {}
        last_error: UserError | None = None
        split_languages = (
            split_by_language_pair
            if "translations" in part.data_requirements
            else split_by_language
        )
        for language_split in split_languages(split, self.languages):
            try:
                sources[language_split.name] = part.plan(language_split, specials, seed)
            except UserError as error:
                last_error = error
        if not sources:
            raise last_error or UserError(
                f"the {split.name} split holds nothing for assembly.parts.{name}: prepare some "
                f"translations, as en,de=FILE,FILE, or leave it out with assembly.parts.{name}=null"
            )
        return sources


@dataclass(frozen=True, eq=False)
class MixedSequences(SequenceSource):
    """A concatenation of several sources; ``weights`` and ``labels`` are per source.

    ``bounds`` (S + 1,) holds the first index of each source, then the end.
    """

    sources: tuple[SequenceSource, ...]
    bounds: IntArray
    weights: FloatArray
    labels: tuple[str, ...]
    one_source_per_step: bool

    def indices_at_step(
        self,
        seed: int,
        step: int,
        first_sequence: int,
        within_step: IntArray,
        sequences_per_step: int,
    ) -> tuple[IntArray, IntArray]:
        """Return index and epoch, (B,) each, of the sequences ``within_step`` (B,) of a step.

        ``first_sequence`` is the number of sequences in all steps before, ``sequences_per_step``
        the number in this step.
        """
        if self.one_source_per_step:
            size = max(STEPS_PER_ROUND, len(self.sources))
            source, turn = self._scheduled_source(seed, np.full_like(within_step, step), size)
            return self._index_in_source(seed, source, turn * sequences_per_step + within_step)
        source, turn = self._scheduled_source(
            seed, first_sequence + within_step, self.num_sequences
        )
        return self._index_in_source(seed, source, turn)

    def _scheduled_source(
        self, seed: int, turn_numbers: IntArray, round_size: int
    ) -> tuple[IntArray, IntArray]:
        """Return the source of each turn, and the index of the turn among those of its source."""
        quotas = _integer_quotas(self.weights, round_size)
        ends = np.cumsum(quotas)
        round_number, slot = np.divmod(turn_numbers, round_size)
        permuted_slot = permute_by_epoch(
            partial(_permutation, round_size, seed, "turns"), round_number, slot
        )
        source = np.searchsorted(ends, permuted_slot, side="right")
        return source, round_number * quotas[source] + permuted_slot - (ends - quotas)[source]

    def _index_in_source(
        self, seed: int, source: IntArray, turns: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Return index and epoch of the sequence for each turn of a source."""
        sizes = np.diff(self.bounds)
        epoch, slot = np.divmod(turns, sizes[source])
        index = np.empty_like(slot)
        for number in np.unique(source).tolist():
            mask, size = source == number, int(sizes[number])
            order = partial(_permutation, size, seed, f"rows {number}")
            index[mask] = permute_by_epoch(order, epoch[mask], slot[mask])
        return self.bounds[source] + index, epoch


def _mixed_sequences(
    sources: Sequence[SequenceSource],
    bounds: IntArray,
    length: int,
    index: IntArray,
    epoch: Counters,
) -> SequenceBatch:
    """Return sequences ``index`` (B,) of concatenated sources."""
    index, epoch = np.broadcast_arrays(index, epoch)
    source_ids = np.searchsorted(bounds, index, side="right") - 1
    batches: list[tuple[BoolArray, SequenceBatch]] = []
    for number in np.unique(source_ids).tolist():
        mask = source_ids == number
        index_in_source = index[mask] - bounds[number]
        batches.append((mask, sources[number].sequences(index_in_source, epoch[mask])))
    return batches[0][1] if len(batches) == 1 else merge_batches(batches, length)


def _integer_quotas(weights: FloatArray, round_size: int) -> IntArray:
    """Return quotas of at least 1 that sum to ``round_size``, by weight and largest remainder."""
    exact = round_size * weights / weights.sum()
    quotas = np.maximum(np.floor(exact + 1e-9).astype(np.int64), 1)
    remainder = round_size - int(quotas.sum())
    for _ in range(remainder, 0):
        quotas[quotas.argmax()] -= 1
    quotas[np.argsort(quotas - exact, kind="stable")[: max(remainder, 0)]] += 1
    return quotas


@lru_cache(maxsize=1024)
def _permutation(size: int, seed: int, stream: str, round_number: int) -> RandomPermutation:
    return RandomPermutation(size, stream_key(seed, "mixture", stream, round_number))


def merge_batches(batches: Sequence[tuple[BoolArray, SequenceBatch]], length: int) -> SequenceBatch:
    """Merge sequences of several formats into one batch, with defaults for missing fields."""
    num_sequences = len(batches[0][0])

    def joined(arrays: Sequence[NDArray[Any] | None], default: NDArray[Any] | int) -> Int32Array:
        result = np.empty((num_sequences, length), np.int32)
        for (mask, _), array in zip(batches, arrays, strict=True):
            result[mask] = default if array is None else array
        return result

    defaults = {"position_ids": np.arange(length), "segment_ids": 0, "document_ids": 0}
    infos = [batch.token_info.arrays() for _, batch in batches]
    merged = {
        name: joined([info.get(name) for info in infos], defaults.get(name, -1))
        for name in dict.fromkeys(chain(*infos))
    }
    relations = [(mask, batch.relation) for mask, batch in batches if batch.relation is not None]
    relation = None
    if len(relations) == len(batches):
        relation = np.empty(num_sequences, np.int64)
        for mask, values in relations:
            relation[mask] = values
    token_ids = joined([batch.token_ids for _, batch in batches], 0)
    is_special = joined([batch.is_special for _, batch in batches], 0) > 0
    boundaries = [batch.is_truncation_boundary for _, batch in batches]
    boundary = joined(boundaries, 0) > 0 if any(b is not None for b in boundaries) else None
    return SequenceBatch(token_ids, TokenInfoArrays(**merged), is_special, relation, boundary)
