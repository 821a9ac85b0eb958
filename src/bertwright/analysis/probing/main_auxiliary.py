"""Whether hidden states find the main auxiliary by syntax or by position (Lin et al. 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.result import AnalysisResult, Findings
from bertwright.analysis.core.texts import (
    SentenceWords,
    encode_sentences,
)
from bertwright.analysis.core.word_states import WORD_STATE_TAPS, WordStates, compute_word_states
from bertwright.core.rng import stream_key
from bertwright.core.significance import FloatArray

DETERMINERS = ("the", "some", "my", "your", "our", "her")
NOUNS = ("dog", "cat", "bird", "horse", "lion", "bear", "mouse", "duck", "frog", "cow")
PLURALS = ("dogs", "cats", "birds", "horses", "lions", "bears", "mice", "ducks", "frogs", "cows")
ADJECTIVES = ("big", "small", "old", "young", "happy", "quiet", "brown", "white")
PREPOSITIONS = ("near", "behind", "with", "by", "beside", "around")
RELATIVE_PRONOUNS = ("who", "that")
AUXILIARIES = ("can", "could", "will", "would")
INTRANSITIVE_VERBS = ("sleep", "sing", "walk", "swim", "smile", "wait")
TRANSITIVE_VERBS = ("see", "help", "follow", "hear", "like", "find")

AS_IN_TRAINING = "main auxiliary, as in training"
MAIN_AUXILIARY_AFTER_CLAUSE = "main auxiliary after a clause"

UPPER_LAYER_GAIN = "upper layers minus embeddings, after a clause"
FOURTH_WORD_DROP = "fourth word, embeddings minus last layer"

FIXED_POSITION = 3
"""Index, from 0, of the word that the position probe predicts."""


class MainAuxiliary(Analysis):
    """How well a linear scorer of words finds the main auxiliary of a sentence.

    It is trained on sentences whose main auxiliary comes first ("the dog near my cats can sleep"),
    and tested on sentences where another auxiliary precedes it, in a clause about the subject ("the
    dog that will follow my cats can sleep"). The gain of upper layers is compared with the gain
    under random weights. A second scorer predicts the fourth word. Sentences are sampled from a
    small grammar: ``num_train`` of them, and ``num_test`` of each kind.
    """

    kind: Literal["main-auxiliary"] = "main-auxiliary"
    num_train: int = Field(default=600, ge=10)
    num_test: int = Field(default=300, ge=10)
    survey_id = "B25"
    title = "Is the main auxiliary found by the tree or by its position?"
    source = "Lin et al. 2019"
    taps = WORD_STATE_TAPS
    claims = (
        Claim(
            "training makes upper layers find the main auxiliary by the tree, beyond the "
            "embeddings",
            "a rule of positions in low layers of BERT, of the tree in high ones",
            f"{UPPER_LAYER_GAIN}, minus untrained",
        ),
        Claim(
            "the position of a word is encoded less in the last layer",
            "falls with depth in BERT",
            FOURTH_WORD_DROP,
        ),
    )
    plots = (LayerCurves("fraction of sentences"),)

    def built_in_sentences(self, seed: int) -> list[SentenceWords]:
        return [sentence.words for sentence in self.sample_sentences(seed)]

    def sample_sentences(self, seed: int) -> list["AuxiliarySentence"]:
        """Sample the training sentences, then test sentences of both kinds."""
        generator = np.random.default_rng(stream_key(seed, "main auxiliary"))
        kinds = (False,) * (self.num_train + self.num_test) + (True,) * self.num_test
        return [sample_sentence(generator, is_after_clause) for is_after_clause in kinds]

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        sentences = self.sample_sentences(inputs.seed)
        correct = self._correct_by_metric(inputs, sentences)
        findings = Findings(inputs.seed, includes_embeddings=True)
        for layer in range(len(correct[MAIN_AUXILIARY_AFTER_CLAUSE])):
            for name, values in correct.items():
                findings.add_ratio(name, values[layer], layer=layer)
        gain, untrained_gain = (
            _upper_layer_gain(values[MAIN_AUXILIARY_AFTER_CLAUSE])
            for values in (correct, self._correct_by_metric(inputs.untrained(), sentences))
        )
        fourth = correct["fourth word"]
        findings.add_ratio(UPPER_LAYER_GAIN, gain)
        findings.add_difference(f"{UPPER_LAYER_GAIN}, minus untrained", gain, untrained_gain)
        findings.add_difference(FOURTH_WORD_DROP, fourth[0], fourth[-1])
        return AnalysisResult(findings, {name: v.mean(1) for name, v in correct.items()})

    def _correct_by_metric(
        self, inputs: AnalysisInput, sentences: Sequence["AuxiliarySentence"]
    ) -> dict[str, FloatArray]:
        """Return which test sentences are correct, (layers + 1, N), by metric."""
        texts = encode_sentences(inputs.model, [sentence.words for sentence in sentences])
        word_states = compute_word_states(replace(inputs, texts=texts))
        train, simple, clause = np.split(
            np.arange(len(sentences)), np.cumsum([self.num_train, self.num_test])
        )
        main = np.array([sentence.main_index for sentence in sentences])
        other = np.array([sentence.other_index for sentence in sentences])
        correct: dict[str, list[NDArray[np.bool_]]] = {}
        for layer in range(word_states.num_layers):
            states, mask = pad_states(word_states, layer, len(sentences))
            states = states / states[train][mask[train]].std(0).clamp(min=1e-6)
            auxiliary, fourth = (
                best_positions(states, mask, train_scorer(states[train], mask[train], target))
                for target in (main[train], np.full(len(train), FIXED_POSITION))
            )
            values = {
                AS_IN_TRAINING: auxiliary[simple] == main[simple],
                MAIN_AUXILIARY_AFTER_CLAUSE: auxiliary[clause] == main[clause],
                "first auxiliary, after a clause": auxiliary[clause] == other[clause],
                "fourth word": fourth[simple] == FIXED_POSITION,
            }
            for name, is_correct in values.items():
                correct.setdefault(name, []).append(is_correct)
        return {name: np.array(by_layer, np.float64) for name, by_layer in correct.items()}


def _upper_layer_gain(is_correct: FloatArray) -> FloatArray:
    """Return the mean gain of upper layers over the embeddings, for each sentence (N,)."""
    return is_correct[(len(is_correct) + 1) // 2 :].mean(0) - is_correct[0]


@dataclass(frozen=True)
class AuxiliarySentence:
    """A sentence with the index of its main auxiliary, and of its first other one, -1 for none."""

    words: tuple[str, ...]
    main_index: int
    other_index: int


def sample_sentence(generator: np.random.Generator, is_after_clause: bool) -> AuxiliarySentence:
    """Sample a sentence whose main auxiliary comes first, or after a clause with another one."""

    def one(words: Sequence[str]) -> str:
        return str(generator.choice(words))

    def noun_phrase() -> list[str]:
        adjectives = generator.choice(ADJECTIVES, generator.integers(0, 3), replace=False)
        return [one(DETERMINERS), *map(str, adjectives), one(NOUNS + PLURALS)]

    def prepositional_phrase() -> list[str]:
        return [one(PREPOSITIONS), *noun_phrase()] if generator.random() < 0.5 else []

    def clause() -> list[str]:
        return [one(RELATIVE_PRONOUNS), one(AUXILIARIES), *verb_phrase()]

    def verb_phrase() -> list[str]:
        return (
            [one(TRANSITIVE_VERBS), *noun_phrase()]
            if generator.random() < 0.5
            else [one(INTRANSITIVE_VERBS)]
        )

    subject = [*noun_phrase(), *(clause() if is_after_clause else prepositional_phrase())]
    # A clause about the object adds a second auxiliary to sentences of either kind.
    verb = verb_phrase()
    modifier: list[str] = []
    if len(verb) > 1:
        modifier = clause() if generator.random() < 0.5 else prepositional_phrase()
    words = (*subject, one(AUXILIARIES), *verb, *modifier, ".")
    main = len(subject)
    others = [n for n, word in enumerate(words) if word in AUXILIARIES and n != main]
    return AuxiliarySentence(words, main, others[0] if others else -1)


def pad_states(word_states: WordStates, layer: int, num_sentences: int) -> tuple[Tensor, Tensor]:
    """Return the states of a layer by sentence, (N, T, D), and the word mask (N, T)."""
    sizes = np.bincount(word_states.text_ids, minlength=num_sentences)
    mask = torch.from_numpy(np.arange(sizes.max()) < sizes[:, None])
    states = torch.zeros(*mask.shape, word_states.states.shape[-1])
    states[mask] = torch.from_numpy(np.array(word_states.states[layer]))
    return states, mask


def train_scorer(states: Tensor, word_mask: Tensor, target_positions: NDArray[np.int64]) -> Tensor:
    """Train weights (D,) that give the target word of each sentence the highest score."""
    weights = nn.Parameter(torch.zeros(states.shape[-1]))
    optimizer = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")
    targets = torch.from_numpy(target_positions)

    def closure() -> float:
        optimizer.zero_grad()
        scores = (states @ weights).masked_fill(~word_mask, -torch.inf)
        loss = nn.functional.cross_entropy(scores, targets) + 1e-3 * weights.square().sum()
        loss.backward()
        return float(loss.detach())

    optimizer.step(closure)
    return weights.detach()


def best_positions(states: Tensor, word_mask: Tensor, weights: Tensor) -> NDArray[np.int64]:
    """Return the highest-scoring word of every sentence, (N,)."""
    return (states @ weights).masked_fill(~word_mask, -torch.inf).argmax(1).numpy()
