"""Which layers encode parts of speech and dependency relations (Tenney et al. 2019a, b)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.requirements import missing_halves, missing_trees
from bertwright.analysis.core.result import (
    AnalysisFinding,
    AnalysisResult,
    Findings,
)
from bertwright.analysis.core.texts import AnalysedText
from bertwright.analysis.core.word_states import WORD_STATE_TAPS, WordStates, compute_word_states
from bertwright.analysis.probing.layer_probe import part_of_speech_tags
from bertwright.core.rng import stream_key
from bertwright.core.significance import (
    FloatArray,
    bootstrap_statistic,
    split_halves,
)
from bertwright.core.statistics import estimate

BATCH_SIZE = 64
"""Number of examples per step."""

GAIN_OVER_EMBEDDINGS = "gain over the embeddings"

TASKS = ("relation", "part of speech")
"""The task resolved in higher layers, then the task resolved in lower layers."""
EXPECTED_LAYER_DIFFERENCE = f"expected layer, {' minus '.join(TASKS)}"


def missing_relations(inputs: AnalysisInput) -> str | None:
    """Return why relations cannot be learned from half of the sentences, or None if they can."""
    for half in split_halves(len(inputs.texts), inputs.seed):
        if not any(dependency_pairs(inputs.texts[n]) for n in half):
            return "no word of half of the sentences depends on another: give more sentences"
    return None


def dependency_pairs(text: AnalysedText) -> list[tuple[int, int, str]]:
    """Return words with their heads and relations, punctuation excluded."""
    tree, size = text.tree, len(text.words)
    pairs = zip(range(size), tree.heads[:size], tree.relations[:size], strict=True)
    return [pair for pair in pairs if 0 <= pair[1] < size and pair[2] != "punct"]


class EdgeProbe(Analysis):
    """In which layers parts of speech and dependency relations become predictable.

    For each l, a probe on a weighted sum of layers 0 to l predicts the part of speech of a word, or
    its relation to its head. It is trained on half of the sentences and tested on the other half.
    The gain from layer to layer gives the expected layer; the weights of the sum over all layers
    give its centre of gravity. Spans are single words. Results are means of ``num_seeds`` probes;
    intervals are over sentences.
    """

    kind: Literal["edge-probe"] = "edge-probe"
    width: int = Field(default=64, ge=1)
    epochs: int = Field(default=15, ge=1)
    learning_rate: float = Field(default=2e-3, gt=0)
    num_seeds: int = Field(default=3, ge=2)
    survey_id = "B21"
    title = "In which layers are parts of speech and relations resolved?"
    source = "Tenney et al. 2019"
    taps = WORD_STATE_TAPS
    requires = (missing_trees, missing_halves(), missing_relations)
    claims = (
        Claim(
            "parts of speech are resolved in lower layers than relations",
            "3.39 and 5.69 in BERT-large",
            EXPECTED_LAYER_DIFFERENCE,
            0.0,
            "the same layer",
        ),
        Claim(
            "the blocks add to what the embeddings tell about relations",
            "for every task",
            f"relation: {GAIN_OVER_EMBEDDINGS}",
            0.0,
            "nothing",
        ),
    )
    plots = (
        LayerCurves(
            "accuracy of the layers up to this one",
            lambda r: {n: r.arrays[f"{n} scores"].mean(0) for n in TASKS},
        ),
        LayerCurves(
            "weight in the sum of all layers",
            lambda r: {n: r.arrays[f"{n} weights"].mean(0) for n in TASKS},
        ),
    )

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        word_states = compute_word_states(inputs)
        findings, note = Findings(inputs.seed), f"mean of {self.num_seeds} probes"
        arrays: dict[str, FloatArray] = {}
        sums: dict[str, FloatArray] = {}
        for name, edges in edge_examples(inputs, word_states).items():
            scores, weights, sums[name] = self._probe_scores(inputs, word_states, name, edges)
            arrays |= {f"{name} scores": scores, f"{name} weights": weights}
            first, last, num_targets = sums[name][:, [0, -2, -1]].T
            expected, _ = bootstrap_statistic(expected_layer, sums[name], seed=inputs.seed)
            findings.add_interval(f"{name}: expected layer", expected, note=note)
            findings.add_ratio(f"{name}: score of all layers", last, num_targets, note=note)
            findings.add_difference(
                f"{name}: {GAIN_OVER_EMBEDDINGS}",
                (last, num_targets),
                (first, num_targets),
                note=note,
            )
            centre = weights @ np.arange(word_states.num_layers)
            divergence = (weights * np.log(weights * word_states.num_layers)).sum(1)
            findings += [
                finding_over_seeds(f"{name}: centre of gravity of the layer weights", centre),
                finding_over_seeds(
                    f"{name}: KL divergence of the layer weights from uniform", divergence
                ),
            ]
            for layer, value in enumerate(scores.mean(0)):
                metric = f"{name}: score of the layers up to this one"
                findings.add_value(metric, value, layer=layer, includes_embeddings=True)
        difference, _ = bootstrap_statistic(
            expected_layer, *(sums[name] for name in TASKS), seed=inputs.seed
        )
        findings.add_interval(EXPECTED_LAYER_DIFFERENCE, difference, note=note)
        return AnalysisResult(findings, arrays)

    def _probe_scores(
        self, inputs: AnalysisInput, word_states: WordStates, name: str, examples: "EdgeExamples"
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Train probes on the layers up to each layer, and score them.

        Returns the accuracies (seeds, layers); the layer weights of the last probe (seeds, layers);
        and (N, layers + 1) for the test sentences: the mean number of correct predictions by layer,
        then the number of targets.
        """
        train, test = split_halves(len(inputs.texts), inputs.seed)
        splits = tuple(
            examples.select(np.isin(word_states.text_ids, half)) for half in (train, test)
        )
        text_ids = word_states.text_ids[splits[1].word_indices[:, 0].numpy()]
        correct = np.zeros((self.num_seeds, word_states.num_layers, len(text_ids)))
        weights = np.zeros((self.num_seeds, word_states.num_layers))
        for seed in range(self.num_seeds):
            for layer in range(word_states.num_layers):
                drawn = stream_key(inputs.seed, f"{name} {seed}") >> 1
                correct[seed, layer], mix = self._train_probe(word_states, layer + 1, splits, drawn)
                # The last probe, which reads all layers, overwrites the weights of earlier ones.
                weights[seed, : len(mix)] = mix
        columns = (*correct.mean(0), np.ones(len(text_ids)))
        by_text = [np.bincount(text_ids, values, len(inputs.texts))[test] for values in columns]
        return correct.mean(2), weights, np.array(by_text, np.float64).T

    def _train_probe(
        self, word_states: WordStates, num_layers: int, splits: Sequence["EdgeExamples"], seed: int
    ) -> tuple[NDArray[np.bool_], FloatArray]:
        """Return which test examples (N,) a probe of the first layers predicts, and its weights."""
        train, test = splits
        generator = torch.Generator().manual_seed(seed)
        probe = ScalarMixProbe(
            word_states,
            num_layers,
            train.word_indices.shape[1],
            train.num_labels,
            self.width,
            generator,
        )
        optimizer = torch.optim.Adam(probe.parameters(), self.learning_rate)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, self.epochs)
        for _ in range(self.epochs):
            order = torch.randperm(len(train.word_indices), generator=generator)
            for batch in order.split(BATCH_SIZE):
                logits = probe(train.word_indices[batch])
                optimizer.zero_grad()
                nn.functional.cross_entropy(logits, train.labels[batch]).backward()
                optimizer.step()
            scheduler.step()
        with torch.no_grad():
            predicted = torch.cat(
                [probe(batch).argmax(1) for batch in test.word_indices.split(1024)]
            )
            return (predicted == test.labels).numpy(), probe.mix.softmax(0).double().numpy()


@dataclass(frozen=True)
class EdgeExamples:
    """Words or pairs of words with labels.

    Attributes:
        word_indices: (N, 1 or 2) indices among all words.
        labels: (N,) class indices.
    """

    word_indices: Tensor
    labels: Tensor
    num_labels: int

    def select(self, is_selected: NDArray[np.bool_]) -> "EdgeExamples":
        """Return the examples whose first word is in ``is_selected`` (W,) bool."""
        kept = torch.from_numpy(is_selected)[self.word_indices[:, 0]]
        return EdgeExamples(self.word_indices[kept], self.labels[kept], self.num_labels)


class ScalarMixProbe(nn.Module):
    """A probe: a weighted sum of layers, a projection of each word, and a tanh layer on top."""

    def __init__(
        self,
        word_states: WordStates,
        num_layers: int,
        num_words: int,
        num_labels: int,
        width: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        states = torch.from_numpy(np.array(word_states.states[:num_layers]))
        # Layers are scaled to the same norm, so that the weights are comparable.
        self.hidden_states = states / states.square().mean((1, 2), keepdim=True).sqrt()
        self.mix = nn.Parameter(torch.zeros(num_layers))
        self.scale = nn.Parameter(torch.ones(()))
        self.project = nn.ModuleList(
            nn.Linear(word_states.states.shape[-1], width) for _ in range(num_words)
        )
        self.hidden_layer = nn.Linear(num_words * width, width)
        self.output = nn.Linear(width, num_labels)
        for linear in (*self.project, self.hidden_layer, self.output):
            assert isinstance(linear, nn.Linear)
            nn.init.kaiming_uniform_(linear.weight, 5**0.5, generator=generator)
            nn.init.zeros_(linear.bias)

    def forward(self, word_indices: Tensor) -> Tensor:
        """Return logits (N, labels) for words (N, 1 or 2)."""
        weights = self.scale * self.mix.softmax(0)
        mixed = torch.einsum("l,lnkd->nkd", weights, self.hidden_states[:, word_indices])
        projected = [project(mixed[:, n]) for n, project in enumerate(self.project)]
        return self.output(torch.tanh(self.hidden_layer(torch.cat(projected, 1))))


def expected_layer(num_correct_by_layer: FloatArray) -> FloatArray:
    """Return the expected layer, given counts (..., layers + 1).

    The counts are correct predictions by layer, then the number of targets. The expected layer is 0
    if the blocks add nothing to the embeddings.
    """
    gains = np.diff(num_correct_by_layer[..., :-1] / np.maximum(num_correct_by_layer[..., -1:], 1))
    total_gain = gains.sum(-1)
    weighted = gains @ np.arange(1, gains.shape[-1] + 1)
    return np.divide(weighted, total_gain, out=np.zeros_like(total_gain), where=total_gain > 0)


def edge_examples(inputs: AnalysisInput, word_states: WordStates) -> dict[str, EdgeExamples]:
    """Return words with their parts of speech, and words with their heads and relations."""
    tags = part_of_speech_tags(inputs).tolist()
    starts = np.searchsorted(word_states.text_ids, np.arange(len(inputs.texts))).tolist()
    pairs = [
        ((start + word, start + head), relation)
        for start, text in zip(starts, inputs.texts, strict=True)
        for word, head, relation in dependency_pairs(text)
    ]
    return {
        "part of speech": _encode_examples([(word,) for word in range(len(tags))], tags),
        "relation": _encode_examples([pair for pair, _ in pairs], [label for _, label in pairs]),
    }


def finding_over_seeds(metric: str, values: Sequence[float] | FloatArray) -> AnalysisFinding:
    """Return a finding with the mean over probes and its interval."""
    summary = estimate([float(value) for value in values])
    note = f"over {summary.num_values} probes"
    return AnalysisFinding(metric, summary.mean, interval=(summary.low, summary.high), note=note)


def _encode_examples(
    word_indices: Sequence[tuple[int, ...]], labels: Sequence[str]
) -> EdgeExamples:
    names, label_ids = np.unique(np.array(labels), return_inverse=True)
    return EdgeExamples(torch.tensor(word_indices), torch.from_numpy(label_ids), len(names))
