"""Pre-training batches, each a pure function of the training progress.

Sequences are reshuffled in every epoch by a permutation evaluated element by element. The masking
of a sequence depends only on the seed, the epoch and the sequence. No state has to be saved, and
micro-batches and the number of processes do not change the training data.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bertwright.batches.batch import Batch, TargetMaker, make_batch
from bertwright.batches.formats import MixedSequences
from bertwright.batches.targets import Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun
from bertwright.core.rng import CounterRng, RandomPermutation, permute_by_epoch, stream_key
from bertwright.data.shards.dataset import Dataset
from bertwright.objectives.objective import MaskingContext, Objective
from bertwright.objectives.schedule import group_at_step
from bertwright.recipes import Recipe
from bertwright.training.clock import Progress
from bertwright.training.process_group import SINGLE_PROCESS, ProcessGroup
from bertwright.training.sequence_sources import SequenceSources
from bertwright.training.step_batch import StepBatch

NUM_PROBED_SEQUENCES, PROBE_BATCH_SIZE = 2048, 64
"""Number of sequences searched for a target of each objective."""

MAX_BATCH_SIZES = 8
"""Maximum number of sizes of a growing batch, since each size is compiled separately."""


class PretrainingBatches:
    """The pre-training batches of a recipe and a data set.

    The sequences of a process are split into equal micro-batches of at most
    ``recipe.micro_batch_tokens``, unless an objective compares them with each other.
    """

    def __init__(
        self, recipe: Recipe, data: Dataset, process_group: ProcessGroup = SINGLE_PROCESS
    ) -> None:
        self._recipe = recipe
        self._vocabulary = Vocabulary.from_tokenizer(data.tokenizer, data.token_counts)
        self._process_group = process_group
        phases = range(len(recipe.phases))
        self._objectives = [recipe.objectives_of(phase) for phase in phases]
        self._objective_groups = [recipe.objective_schedule(phase) for phase in phases]
        self._require_one_process()
        self._sources = SequenceSources(recipe, data, "train", recipe.seed)

    def _require_one_process(self) -> None:
        """Raise UserError if an objective would compare only the sequences of a process."""
        for name, objective in self._recipe.objectives.items():
            if objective.capabilities.compares_sequences and self._process_group.world_size > 1:
                raise UserError(
                    f"objectives.{name} compares all sequences of a step: train in one process"
                )

    def check_data(self) -> None:
        """Make the first batch of every phase, to report missing data before training starts.

        Errors: UserError for missing data or an objective without targets.
        """
        for phase, groups in enumerate(self._objective_groups):
            for group in groups:
                progress = Progress(0, 0.0, phase)
                first = self._micro_batch(progress, group.objectives, np.arange(1))
                self._require_targets(progress, group.objectives, first)

    def _require_targets(
        self, progress: Progress, objectives: Mapping[str, Objective], batch: Batch
    ) -> None:
        """Raise UserError for an objective without targets in a batch and in sampled sequences."""
        size = self.epoch_size(progress.phase, objectives)
        probed = np.unique(np.linspace(0, size - 1, NUM_PROBED_SEQUENCES).astype(np.int64))
        bounds = range(PROBE_BATCH_SIZE, len(probed), PROBE_BATCH_SIZE)
        idle = set(objectives)
        for index in (None, *np.split(probed, bounds)):
            if index is not None:
                batch = self.make_batch(progress, objectives, index, np.zeros_like(index))
            idle = {name for name in idle if not batch.targets[name].weights.any()}
            if not idle:
                return
        raise UserError(
            f"objectives.{min(idle)} has no target in {len(probed):,} sequences of the data: "
            f"nothing would be learned; prepare other text, or remove the objective"
        )

    def __call__(self, progress: Progress) -> StepBatch[Batch]:
        """Return the batch of a step."""
        length = self._recipe.input_format_of(progress.phase).length
        batch_size = self.batch_size(progress)
        local = self._process_group.local_slice(batch_size)
        local_size = local.stop - local.start
        # The same number in every process, which a sharded model needs.
        smallest_size = batch_size // self._process_group.world_size
        largest_size = -(-batch_size // self._process_group.world_size)
        micro_batch_tokens = max(self._recipe.micro_batch_tokens, length)
        parts = min(max(1, -(-largest_size * length // micro_batch_tokens)), smallest_size)
        objectives = group_at_step(
            self._objective_groups[progress.phase], self._recipe.seed, progress.step
        ).objectives
        if any(o.capabilities.compares_sequences for o in objectives.values()):
            parts = 1
        bounds = [local.start + local_size * part // parts for part in range(parts + 1)]
        batches = [
            self._micro_batch(progress, objectives, np.arange(start, stop))
            for start, stop in pairwise(bounds)
        ]
        loss_counts = {
            name: sum(float(batch.targets[name].weights.sum()) for batch in batches)
            for name in objectives
        }
        masked_counts = {
            name: _sum_pairs(batch.masked_counts(name) for batch in batches)
            for name, objective in objectives.items()
            if objective.capabilities.masks_input
        }
        num_tokens = sum(batch.num_tokens for batch in batches)
        return StepBatch(batches, loss_counts, batch_size, num_tokens, masked_counts)

    def batch_size(self, progress: Progress) -> int:
        """Return the sequences per step over all processes.

        The recipe's tokens, padding included, are rounded to whole sequences, the same number for
        every direction.
        """
        schedule = self._recipe.batch_tokens
        lowest, highest = schedule.value_range()
        step = (highest - lowest) / (MAX_BATCH_SIZES - 1)
        stage = round((schedule.at(progress.fraction) - lowest) / step) if step else 0
        tokens = (lowest + stage * step) * self._recipe.phases[progress.phase].batch
        input_format = self._recipe.input_format_of(progress.phase)
        size = max(round(tokens / input_format.length), self._process_group.world_size)
        return -(-size // input_format.num_directions) * input_format.num_directions

    def loss_weights(self, progress: Progress) -> dict[str, float]:
        """Return the loss weights of the objectives."""
        fraction = self._schedule_fraction(progress)
        objectives = self._objectives[progress.phase].items()
        return {name: objective.weight.at(fraction) for name, objective in objectives}

    def _schedule_fraction(self, progress: Progress) -> float:
        """Return the fraction of the phase if it defines objectives, else of the run."""
        has_objectives = self._recipe.phases[progress.phase].objectives is not None
        return progress.phase_fraction if has_objectives else progress.fraction

    def epoch_size(self, phase: int, objectives: Mapping[str, Objective]) -> int:
        """Return the number of sequences in an epoch of these objectives."""
        return self._sources.get(phase, objectives).num_sequences

    def unmasked_sequences(
        self,
        phase: int,
        objectives: Mapping[str, Objective],
        index: NDArray[np.int64],
        epoch: NDArray[np.int64],
    ) -> SequenceBatch:
        """Return the sequences ``index`` (B,) of ``epoch`` (B,) before masking."""
        masking_epoch = _masking_epoch(objectives.values(), epoch)
        return self._sources.get(phase, objectives).sequences(index, masking_epoch)

    def make_batch(
        self,
        progress: Progress,
        objectives: Mapping[str, Objective],
        index: NDArray[np.int64],
        epoch: NDArray[np.int64],
        first_sequence: int = 0,
        continues_previous: bool = False,
    ) -> Batch:
        """Return the batch of sequences ``index`` (B,) of ``epoch`` (B,) with targets."""
        target_makers = {
            name: target_maker(
                objective, self._recipe.seed, self._vocabulary, self._schedule_fraction(progress)
            )
            for name, objective in objectives.items()
        }
        return make_batch(
            self._sources.get(progress.phase, objectives),
            index,
            _masking_epoch(objectives.values(), epoch),
            target_makers,
            first_sequence,
            continues_previous,
            self._vocabulary,
        )

    def _micro_batch(
        self,
        progress: Progress,
        objectives: Mapping[str, Objective],
        indices_in_step: NDArray[np.int64],
    ) -> Batch:
        """Return the micro-batch of these sequences, numbered within the step."""
        input_format = self._recipe.input_format_of(progress.phase, objectives.values())
        source = self._sources.get(progress.phase, objectives)
        batch_size, first_sequence = self.batch_size(progress), int(indices_in_step[0])
        if isinstance(source, MixedSequences):
            index, epoch = source.indices_at_step(
                self._recipe.seed,
                progress.step,
                progress.num_sequences,
                indices_in_step,
                batch_size,
            )
            return self.make_batch(progress, objectives, index, epoch, first_sequence)
        # Every direction gets an equal part of the step and of the source.
        num_sequences = source.num_sequences // input_format.num_directions
        batch_size = batch_size // input_format.num_directions
        direction, number = np.divmod(indices_in_step, batch_size)
        num_read = progress.num_sequences // input_format.num_directions
        if input_format.is_sequential:
            stretch = stretch_length(num_sequences, batch_size)
            current_epoch, step = divmod(num_read // batch_size, stretch)
            # Sequence r of every step belongs to the r-th stretch of the text.
            index = number * stretch + np.where(direction == 1, stretch - 1 - step, step)
            epoch = np.full_like(index, current_epoch)
        else:
            step = 0
            index, epoch = self._shuffled_indices(num_sequences, num_read + number)
        index += direction * num_sequences
        return self.make_batch(
            progress, objectives, index, epoch, first_sequence, continues_previous=step > 0
        )

    def _shuffled_indices(
        self, num_sequences: int, indices: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the shuffled sequence numbers and epochs at ``indices`` of the run."""
        epoch, position = np.divmod(indices, num_sequences)
        permutation = partial(_epoch_permutation, num_sequences, self._recipe.seed)
        return permute_by_epoch(permutation, epoch, position), epoch


def _sum_pairs(pairs: Iterable[tuple[float, float]]) -> tuple[float, float]:
    firsts, seconds = zip(*pairs, strict=True)
    return sum(firsts), sum(seconds)


def stretch_length(num_sequences: int, batch_size: int) -> int:
    """Return the number of sequences per stretch, for a text that is read in parallel stretches.

    Errors: UserError if there are fewer sequences than ``batch_size``.
    """
    if num_sequences < batch_size:
        raise UserError(
            f"the text has {count_noun(num_sequences, 'sequence')}, but the batch size is "
            f"{batch_size}: set a smaller batch_tokens or assembly.length, or prepare more text"
        )
    return num_sequences // batch_size


def target_maker(
    objective: Objective, seed: int, vocabulary: Vocabulary, fraction: float
) -> TargetMaker:
    """Return the function that makes an objective's targets at a fraction of its schedule."""

    def make_targets(
        batch: SequenceBatch,
        epoch: NDArray[np.int64],
        index: NDArray[np.int64],
        earlier_targets: Mapping[str, Targets],
    ) -> tuple[SequenceBatch, Targets]:
        rng = CounterRng(seed, epoch, index)
        batch, targets = objective.make_targets(
            batch, MaskingContext(rng, vocabulary, fraction, earlier_targets)
        )
        return objective.with_task_ids(batch), targets

    return make_targets


@lru_cache(maxsize=1024)
def _epoch_permutation(num_sequences: int, seed: int, epoch: int) -> RandomPermutation:
    return RandomPermutation(num_sequences, stream_key(seed, "order", epoch))


def _masking_epoch(objectives: Iterable[Objective], epoch: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the epoch used for masking: static masks repeat earlier epochs."""
    for objective in objectives:
        if objective.token_corruption is not None:
            epoch = np.asarray(objective.token_corruption.repeated_epoch(epoch))
    return epoch
