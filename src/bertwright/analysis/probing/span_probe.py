"""Probes of spans of words on a weighted sum of layers (Tenney et al. 2019a, section 3)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from bertwright.analysis.core.word_states import WordStates
from bertwright.analysis.probing.edge_tasks import LabelledEdge
from bertwright.core.rng import stream_key
from bertwright.core.significance import FloatArray, split_halves

BATCH_SIZE = 64
"""Number of examples per step."""

MIX_LEARNING_RATE = 10
"""Learning rate of the layer weights, relative to the others; few steps would hardly move them."""


@dataclass(frozen=True)
class EdgeExamples:
    """Spans, or pairs of spans, with labels.

    Attributes:
        spans: (N, 1 or 2, 2) first word of each span and the word after its last, among all words.
        labels: (N,) class indices.
    """

    spans: Tensor
    labels: Tensor
    num_labels: int

    @staticmethod
    def from_edges(
        word_states: WordStates, edges_of_texts: Sequence[Sequence[LabelledEdge]]
    ) -> "EdgeExamples | None":
        """Gather the edges of all texts; None if there are none."""
        starts = np.searchsorted(word_states.text_ids, np.arange(len(edges_of_texts))).tolist()
        edges = [
            ([(start + first, start + stop) for first, stop in edge.spans], edge.label)
            for start, edges in zip(starts, edges_of_texts, strict=True)
            for edge in edges
        ]
        if not edges:
            return None
        names, label_ids = np.unique(np.array([label for _, label in edges]), return_inverse=True)
        spans = torch.tensor([spans for spans, _ in edges])
        return EdgeExamples(spans, torch.from_numpy(label_ids), len(names))

    def select(self, is_selected: NDArray[np.bool_]) -> "EdgeExamples":
        """Return the examples whose first word is in ``is_selected`` (W,) bool."""
        kept = torch.from_numpy(is_selected)[self.spans[:, 0, 0]]
        return EdgeExamples(self.spans[kept], self.labels[kept], self.num_labels)


@dataclass(frozen=True)
class ProbeData:
    """Hidden states with examples in the training and the test half of their texts.

    Attributes:
        test_texts: (N,) indices of the test texts that have examples.
    """

    word_states: WordStates
    train: EdgeExamples
    test: EdgeExamples
    test_texts: NDArray[np.int64]

    @staticmethod
    def split(
        word_states: WordStates,
        edges_of_texts: Sequence[Sequence[LabelledEdge]],
        seed: int,
    ) -> "ProbeData | None":
        """Split the texts in half at random; None if a half has no examples."""
        examples = EdgeExamples.from_edges(word_states, edges_of_texts)
        if examples is None:
            return None
        halves = split_halves(len(edges_of_texts), seed)
        train, test = (examples.select(np.isin(word_states.text_ids, half)) for half in halves)
        if not len(train.labels) or not len(test.labels):
            return None
        has_edges = [n for n in halves[1] if edges_of_texts[n]]
        return ProbeData(word_states, train, test, np.array(has_edges))

    def with_states(self, word_states: WordStates) -> "ProbeData":
        """Return the same examples with the states of another model."""
        return ProbeData(word_states, self.train, self.test, self.test_texts)

    def sums_by_text(self, values: ArrayLike) -> FloatArray:
        """Return the sums over the examples of each test text (N, K), from values (K, examples)."""
        text_ids = self.word_states.text_ids[self.test.spans[:, 0, 0].numpy()]
        number = int(self.test_texts.max()) + 1
        rows = np.atleast_2d(np.asarray(values, np.float64))
        sums = [np.bincount(text_ids, row, number)[self.test_texts] for row in rows]
        return np.array(sums, np.float64).T

    @property
    def majority_accuracy(self) -> float:
        """Test accuracy of the most frequent training label."""
        majority = torch.bincount(self.train.labels).argmax()
        return float((self.test.labels == majority).double().mean())


@dataclass(frozen=True)
class ProbeScores:
    """Predictions of probes with different seeds on the layers up to each layer.

    Attributes:
        is_correct: (seeds, layers, examples) whether the test label is predicted.
        weights: (seeds, layers) the layer weights of the probe on all layers.
    """

    is_correct: NDArray[np.bool_]
    weights: FloatArray


@dataclass(frozen=True)
class ProbeTraining:
    """Settings of the training of probes."""

    width: int
    epochs: int
    learning_rate: float
    num_seeds: int

    def cumulative_scores(self, data: ProbeData, name: str, seed: int) -> ProbeScores:
        """Train probes on the layers up to each layer, from the embeddings on."""
        num_layers = data.word_states.num_layers
        is_correct = np.zeros((self.num_seeds, num_layers, len(data.test.labels)), np.bool_)
        weights = np.zeros((self.num_seeds, num_layers))
        for index in range(self.num_seeds):
            for layer in range(num_layers):
                # The last probe, which reads all layers, overwrites the weights of earlier ones.
                is_correct[index, layer], mix = self.train(data, layer + 1, name, seed, index)
                weights[index, : len(mix)] = mix
        return ProbeScores(is_correct, weights)

    def train(
        self, data: ProbeData, num_layers: int, name: str, seed: int, index: int
    ) -> tuple[NDArray[np.bool_], FloatArray]:
        """Return which test examples (N,) a probe of the first layers predicts, and its weights.

        ``name`` is that of the task, ``index`` the number of the probe.
        """
        generator = torch.Generator().manual_seed(stream_key(seed, f"{name} {index}") >> 1)
        train, test = data.train, data.test
        probe = ScalarMixProbe(data.word_states, num_layers, train, self.width, generator)
        others = [parameter for parameter in probe.parameters() if parameter is not probe.mix]
        optimizer = torch.optim.Adam(
            [
                {"params": others, "lr": self.learning_rate},
                {"params": [probe.mix], "lr": MIX_LEARNING_RATE * self.learning_rate},
            ]
        )
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, self.epochs)
        for _ in range(self.epochs):
            order = torch.randperm(len(train.labels), generator=generator)
            for batch in order.split(BATCH_SIZE):
                logits = probe(train.spans[batch])
                optimizer.zero_grad()
                nn.functional.cross_entropy(logits, train.labels[batch]).backward()
                optimizer.step()
            scheduler.step()
        with torch.no_grad():
            predicted = torch.cat([probe(batch).argmax(1) for batch in test.spans.split(1024)])
            return (predicted == test.labels).numpy(), probe.mix.softmax(0).double().numpy()


class ScalarMixProbe(nn.Module):
    """A probe: a weighted sum of layers, a projection and pooling of each span, and a tanh layer.

    Words are pooled with learned attention weights; both spans of a pair have their own projection.
    """

    def __init__(
        self,
        word_states: WordStates,
        num_layers: int,
        examples: EdgeExamples,
        width: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        states = torch.from_numpy(np.array(word_states.states[:num_layers]))
        # Layers are scaled to the same norm, so that the weights are comparable.
        self.hidden_states = states / states.square().mean((1, 2), keepdim=True).sqrt()
        self.mix = nn.Parameter(torch.zeros(num_layers))
        self.scale = nn.Parameter(torch.ones(()))
        num_spans = examples.spans.shape[1]
        self.project = nn.ModuleList(nn.Linear(states.shape[-1], width) for _ in range(num_spans))
        self.score = nn.ModuleList(nn.Linear(width, 1) for _ in range(num_spans))
        self.hidden_layer = nn.Linear(num_spans * width, width)
        self.output = nn.Linear(width, examples.num_labels)
        for linear in (*self.project, self.hidden_layer, self.output):
            assert isinstance(linear, nn.Linear)
            nn.init.kaiming_uniform_(linear.weight, 5**0.5, generator=generator)
            nn.init.zeros_(linear.bias)
        for score in self.score:
            assert isinstance(score, nn.Linear)
            # All words of a span weigh the same at first.
            nn.init.zeros_(score.weight)
            nn.init.zeros_(score.bias)

    def forward(self, spans: Tensor) -> Tensor:
        """Return logits (N, labels) for spans (N, 1 or 2, 2)."""
        pooled = [self.pool(spans[:, number], number) for number in range(spans.shape[1])]
        return self.output(torch.tanh(self.hidden_layer(torch.cat(pooled, 1))))

    def pool(self, spans: Tensor, number: int) -> Tensor:
        """Return the pooled projections (N, width) of the ``number``-th spans (N, 2)."""
        lengths = spans[:, 1] - spans[:, 0]
        owners = torch.arange(len(spans)).repeat_interleave(lengths)
        offsets = torch.arange(len(owners)) - (lengths.cumsum(0) - lengths)[owners]
        words = spans[owners, 0] + offsets
        weights = self.scale * self.mix.softmax(0)
        mixed = torch.einsum("l,lwd->wd", weights, self.hidden_states[:, words])
        projected = self.project[number](mixed)
        scores = self.score[number](projected)[:, 0]
        largest = scores.detach().new_zeros(len(spans))
        largest = largest.scatter_reduce(0, owners, scores.detach(), "amax", include_self=False)
        attention = (scores - largest[owners]).exp()
        total = attention.new_zeros(len(spans)).index_add(0, owners, attention)
        attention = attention / total[owners]
        zeros = projected.new_zeros(len(spans), projected.shape[1])
        return zeros.index_add(0, owners, attention[:, None] * projected)
