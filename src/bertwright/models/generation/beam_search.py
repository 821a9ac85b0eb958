"""Beam search (Sutskever et al. 2014, section 3.2; length penalty: Wu et al. 2016, section 7)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.generation.config import (
    FloatArray,
    GenerationConfig,
    log_softmax,
    mask_special_logits,
)
from bertwright.models.generation.sampling import (
    GeneratedText,
    GenerationState,
    StoppingCriteria,
    length_batches,
)
from bertwright.models.generation.sequences import GrowingSequences


@torch.inference_mode()
def beam_search(
    texts: Sequence[GenerationState],
    open_sequences: Callable[[Sequence[GenerationState]], GrowingSequences],
    stopping_criteria: StoppingCriteria,
) -> list[GeneratedText]:
    """Return up to ``num_beams`` finished beams of every text; the best is sample 0."""
    tokenizer, config = stopping_criteria.tokenizer, stopping_criteria.config
    searches = {id(text): BeamSearch([Beam(text)], config, stopping_criteria) for text in texts}
    for batch in length_batches(texts, config.max_new_tokens, config.num_beams):
        sequences = open_sequences(batch)
        active = [searches[id(text)] for text in batch]
        while active:
            parents, token_ids = _advance(active, sequences.logits(), tokenizer, config)
            if token_ids:
                sequences.select(parents)
                sequences.append(token_ids)
            active = [search for search in active if search.active]
    results = list[GeneratedText]()
    for text in texts:
        for sample, beam in enumerate(searches[id(text)].finished):
            beam.text.sample = sample
            results.append(beam.text.result())
    return results


def _advance(
    searches: Sequence["BeamSearch"],
    logits: torch.Tensor,
    tokenizer: Tokenizer,
    config: GenerationConfig,
) -> tuple[list[int], list[int]]:
    """Advance every search by one step; return the parent and the token of each new beam.

    Parents are indices into the current beams of all searches; both are (N,).
    """
    log_probabilities = log_softmax(logits.double().cpu().numpy())
    allowed = np.isfinite(mask_special_logits(tokenizer, logits, tokenizer.special_tokens.end))
    present_ids = [beam.text.token_ids for search in searches for beam in search.active]
    penalised = config.penalise_repetition(log_probabilities, present_ids)
    scores = np.where(allowed, penalised, -np.inf)
    parents, token_ids, first = list[int](), list[int](), 0
    for search in searches:
        beams = slice(first, first + len(search.active))
        for beam, token_id in search.step(log_probabilities[beams], scores[beams]):
            parents.append(first + beam)
            token_ids.append(token_id)
        first = beams.stop
    return parents, token_ids


@dataclass
class Beam:
    """A partial text with the cumulative log-probability that ranks it."""

    text: GenerationState
    log_probability: float = 0.0

    def score(self, length_penalty: float) -> float:
        """Return the log-probability divided by a power of the number of new tokens."""
        return self.log_probability / max(1, len(self.text.new_token_ids)) ** length_penalty


@dataclass
class BeamSearch:
    """The beams of one text: ``active`` beams, most probable first, and ``finished`` beams."""

    active: list[Beam]
    config: GenerationConfig
    stopping_criteria: StoppingCriteria
    finished: list[Beam] = field(default_factory=list[Beam])

    def step(self, log_probabilities: FloatArray, scores: FloatArray) -> list[tuple[int, int]]:
        """Extend the active beams; return parent and new token of each beam that stays active.

        ``log_probabilities`` (N, V) are the model's. ``scores`` (N, V) rank the tokens, with -inf
        for tokens that are not allowed.
        """
        num_beams = self.config.num_beams
        totals = scores + np.array([beam.log_probability for beam in self.active])[:, None]
        active, steps = list[Beam](), list[tuple[int, int]]()
        # Twice as many candidates as beams, because every beam may end with its end token; only
        # the best candidates may end, as in Transformers and fairseq.
        for rank, index in enumerate(_top_indices(totals, 2 * num_beams)):
            parent, token_id = divmod(index, totals.shape[1])
            text = self.active[parent].text.with_token(
                token_id, float(log_probabilities[parent, token_id])
            )
            self.stopping_criteria(text)
            beam = Beam(text, float(totals[parent, token_id]))
            if text.finish_reason is not None:
                self.finished += [beam] if rank < num_beams else []
            elif len(active) < num_beams:
                active.append(beam)
                steps.append((parent, token_id))
        self.finished.sort(key=lambda beam: -beam.score(self.config.length_penalty))
        del self.finished[num_beams:]
        self.active = [] if self._is_done(active) else active
        return steps[: len(self.active)]

    def _is_done(self, active: Sequence[Beam]) -> bool:
        """Return whether no active beam has a higher score than the worst finished beam."""
        if len(self.finished) < self.config.num_beams:
            return False
        penalty = self.config.length_penalty
        return all(beam.score(penalty) <= self.finished[-1].score(penalty) for beam in active)


def _top_indices(scores: FloatArray, k: int) -> list[int]:
    """Return the flat indices of the ``k`` largest finite scores, largest first."""
    flat = scores.ravel()
    indices = np.arange(flat.size)
    if k < flat.size:
        indices = np.sort(np.argpartition(-flat, k)[:k])
    indices = indices[np.argsort(-flat[indices], kind="stable")]
    return indices[np.isfinite(flat[indices])].tolist()
