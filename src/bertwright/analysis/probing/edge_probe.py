"""In which layers linguistic structure becomes predictable (Tenney et al. 2019a, b)."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars, LayerCurves
from bertwright.analysis.core.requirements import missing_halves, missing_trees
from bertwright.analysis.core.result import (
    AnalysisFinding,
    AnalysisResult,
    Array,
    BaselineValue,
    Findings,
    StoredResult,
)
from bertwright.analysis.core.texts import AnalysedText
from bertwright.analysis.core.word_states import WORD_STATE_TAPS, compute_word_states
from bertwright.analysis.probing.edge_tasks import (
    CHUNKS,
    DEEP_ARGUMENTS,
    EDGE_TASKS,
    ENTITIES,
    PARTS_OF_SPEECH,
    RELATIONS,
    LabelledEdge,
    relation_edges,
)
from bertwright.analysis.probing.span_probe import ProbeData, ProbeTraining
from bertwright.core.significance import (
    ConfidenceInterval,
    FloatArray,
    bootstrap_difference,
    bootstrap_statistic,
    split_halves,
)
from bertwright.core.statistics import estimate

GAIN_OVER_EMBEDDINGS, GAIN_OVER_UNTRAINED = "gain over the embeddings", "gain over random weights"
EXPECTED_LAYER, SCORE = "expected layer", "score of all layers"
CENTRE_OF_GRAVITY = "centre of gravity of the layer weights"

EdgesByTask = Mapping[str, Sequence[Sequence[LabelledEdge]]]
"""The edges of every text, by task."""


def expected_layer_difference(higher: str, lower: str) -> str:
    """Return the metric of the difference between the expected layers of two tasks."""
    return f"{EXPECTED_LAYER}, {higher} minus {lower}"


def order_claim(higher: str, lower: str, published: str) -> Claim:
    """Return the claim that a task is resolved in higher layers than another."""
    return Claim(
        f"the blocks resolve {lower} in lower layers than {higher}",
        published,
        expected_layer_difference(higher, lower),
        0.0,
        "the same layer",
        is_optional=True,
    )


def gain_claims(*tasks: str) -> tuple[Claim, ...]:
    """Return the claims that the blocks, and their training, help to predict each task."""
    return tuple(
        Claim(text, "for every task", f"{task}: {metric}", 0.0, "nothing", is_optional=True)
        for task in tasks
        for text, metric in (
            (f"the blocks add to what the embeddings tell about {task}", GAIN_OVER_EMBEDDINGS),
            (f"trained weights tell more about {task} than random ones", GAIN_OVER_UNTRAINED),
        )
    )


def curves_by_task(result: StoredResult, suffix: str) -> Mapping[str, Array]:
    """Return the arrays of all tasks with this suffix, averaged over probes, by task."""
    return {
        name.removesuffix(suffix): values.mean(0)
        for name, values in result.arrays.items()
        if name.endswith(suffix)
    }


def expected_layer(num_correct_by_layer: FloatArray) -> FloatArray:
    """Return the expected layer, given counts (..., layers + 1).

    The counts are correct predictions by layer, then the number of targets. The expected layer is 0
    if the blocks add nothing to the embeddings.
    """
    gains = np.diff(num_correct_by_layer[..., :-1] / np.maximum(num_correct_by_layer[..., -1:], 1))
    total_gain = gains.sum(-1)
    weighted = gains @ np.arange(1, gains.shape[-1] + 1)
    return np.divide(weighted, total_gain, out=np.zeros_like(total_gain), where=total_gain > 0)


def has_gain(sums: FloatArray, seed: int) -> bool:
    """Return whether the interval of the gain over the embeddings is above 0.

    ``sums`` are the counts of :func:`expected_layer` for every text, (N, layers + 1).
    """
    first, last, num_targets = sums[:, [0, -2, -1]].T
    return bootstrap_difference((last, num_targets), (first, num_targets), seed=seed).low > 0


def paired_layer_difference(
    first: tuple[ProbeData, FloatArray], second: tuple[ProbeData, FloatArray], seed: int
) -> ConfidenceInterval | None:
    """Return the difference of two expected layers over the test texts of either task.

    ``first`` and ``second`` hold the counts (N, layers + 1) of the test texts of their task. The
    units are those of the task with fewer texts. None unless the blocks add to both tasks: without
    a gain, no layer resolves a task.
    """
    if not all(has_gain(sums, seed) for _, sums in (first, second)):
        return None
    texts = np.union1d(first[0].test_texts, second[0].test_texts)
    counts: list[FloatArray] = []
    for data, sums in (first, second):
        of_all = np.zeros((len(texts), sums.shape[1]))
        of_all[np.searchsorted(texts, data.test_texts)] = sums
        counts.append(of_all)
    difference, _ = bootstrap_statistic(expected_layer, *counts, seed=seed)
    num_units = min(len(sums) for _, sums in (first, second))
    return replace(difference, num_units=num_units)


def finding_over_seeds(metric: str, values: Sequence[float] | FloatArray) -> AnalysisFinding:
    """Return a finding with the mean over probes and its interval."""
    summary = estimate([float(value) for value in values])
    note = f"over {summary.num_values} probes"
    return AnalysisFinding(metric, summary.mean, interval=(summary.low, summary.high), note=note)


def missing_relations(inputs: AnalysisInput) -> str | None:
    """Return why relations cannot be learned from half of the sentences, or None if they can."""
    for half in split_halves(len(inputs.texts), inputs.seed):
        if not any(relation_edges(inputs.texts[n]) for n in half):
            return "no word of half of the sentences depends on another: give more sentences"
    return None


class EdgeProbing(Analysis):
    """A base class of analyses that probe each task on the layers up to each layer.

    For each l, a probe on a weighted sum of layers 0 to l predicts the label of one span of words,
    or of two. It is trained on half of the texts and tested on the other half. The gain from layer
    to layer gives the expected layer; the weights of the sum over all layers give its centre of
    gravity. Baselines are the most frequent label, the embeddings, and the same architecture with
    random weights. Results are means of ``num_seeds`` probes; intervals are over texts. Two tasks
    are compared only if the blocks add to what the embeddings tell about both. Labels share a
    softmax, and the score is accuracy; the published code has a sigmoid for each label, and F1.
    """

    width: int = Field(default=64, ge=1)
    epochs: int = Field(default=15, ge=1)
    learning_rate: float = Field(default=2e-3, gt=0)
    num_seeds: int = Field(default=3, ge=2)
    survey_id = "B21"
    taps = WORD_STATE_TAPS
    plots = (
        LayerCurves(
            "accuracy of the layers up to this one", lambda r: curves_by_task(r, " scores")
        ),
        LayerCurves("weight in the sum of all layers", lambda r: curves_by_task(r, " weights")),
        FindingBars("expected layer, and centre of gravity (tick)", f"{EXPECTED_LAYER}: "),
    )

    @abstractmethod
    def probed_texts(self, inputs: AnalysisInput) -> tuple[Sequence[AnalysedText], EdgesByTask]:
        """Return the texts, and their edges by task."""

    @abstractmethod
    def compared_tasks(self) -> Sequence[tuple[str, str]]:
        """Return pairs of tasks: one that is resolved in higher layers, one in lower layers."""

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        texts, edges_by_task = self.probed_texts(inputs)
        inputs = replace(inputs, texts=texts)
        states = compute_word_states(inputs)
        random_states = compute_word_states(inputs.untrained())
        findings, arrays = Findings(inputs.seed), dict[str, FloatArray]()
        sums: dict[str, tuple[ProbeData, FloatArray]] = {}
        for name, edges in edges_by_task.items():
            data = ProbeData.split(states, edges, inputs.seed)
            if data is None:
                continue
            random = data.with_states(random_states)
            sums[name] = (data, self._add_task(inputs.seed, name, data, random, findings, arrays))
        for higher, lower in self.compared_tasks():
            if higher not in sums or lower not in sums:
                continue
            difference = paired_layer_difference(sums[higher], sums[lower], inputs.seed)
            if difference is not None:
                findings.add_interval(expected_layer_difference(higher, lower), difference)
        return AnalysisResult(findings, arrays)

    def _add_task(
        self,
        seed: int,
        name: str,
        data: ProbeData,
        random: ProbeData,
        findings: Findings,
        arrays: dict[str, FloatArray],
    ) -> FloatArray:
        """Add the findings of a task.

        Returns for each test text the mean number of correct predictions by layer, and the number
        of targets, (N, layers + 1).
        """
        training = ProbeTraining(self.width, self.epochs, self.learning_rate, self.num_seeds)
        scores = training.cumulative_scores(data, name, seed)
        num_layers = data.word_states.num_layers
        by_random = np.mean(
            [training.train(random, num_layers, name, seed, n)[0] for n in range(self.num_seeds)], 0
        )
        values = (*scores.is_correct.mean(0), np.ones(len(data.test.labels)), by_random)
        *correct, num_targets, untrained = data.sums_by_text(values).T
        arrays[f"{name} scores"] = scores.is_correct.mean(2)
        arrays[f"{name} weights"] = scores.weights
        note = f"mean of {self.num_seeds} probes"
        sums = np.array([*correct, num_targets]).T
        expected, _ = bootstrap_statistic(expected_layer, sums, seed=seed)
        centre = scores.weights @ np.arange(num_layers)
        findings.add_interval(
            f"{EXPECTED_LAYER}: {name}",
            expected,
            baseline=BaselineValue("centre of gravity", float(centre.mean())),
            note=note,
        )
        majority = BaselineValue("most frequent label", data.majority_accuracy)
        findings.add_ratio(
            f"{name}: {SCORE}", correct[-1], num_targets, baseline=majority, note=note
        )
        for metric, other in (
            (GAIN_OVER_EMBEDDINGS, correct[0]),
            (GAIN_OVER_UNTRAINED, untrained),
        ):
            findings.add_difference(
                f"{name}: {metric}", (correct[-1], num_targets), (other, num_targets), note=note
            )
        divergence = (scores.weights * np.log(scores.weights * num_layers)).sum(1)
        findings += [
            finding_over_seeds(f"{name}: {CENTRE_OF_GRAVITY}", centre),
            finding_over_seeds(
                f"{name}: KL divergence of the layer weights from uniform", divergence
            ),
        ]
        for layer, num_correct in enumerate(correct):
            at = {"layer": layer, "includes_embeddings": True}
            metric = f"{name}: score of the layers up to this one"
            findings.add_ratio(metric, num_correct, num_targets, **at)
            if layer:
                findings.add_difference(
                    f"{name}: gain of this layer over those before",
                    (num_correct, num_targets),
                    (correct[layer - 1], num_targets),
                    **at,
                )
        return sums


class EdgeProbe(EdgeProbing):
    """In which layers parts of speech, chunks, entities, relations and arguments are predictable.

    Tasks, as far as the sentences are annotated: the part of speech of a word; whether a span is a
    base noun phrase, a verb group or no chunk; the type of a named entity; the relation of a word
    to its head; and the relation of an argument to its verb in the active voice. The method is that
    of :class:`EdgeProbing`.
    """

    kind: Literal["edge-probe"] = "edge-probe"
    title = "In which layers is the structure of a sentence resolved?"
    source = "Tenney et al. 2019"
    requires = (missing_trees, missing_halves(), missing_relations)
    claims = (
        order_claim(RELATIONS, PARTS_OF_SPEECH, "3.39 and 5.69 in BERT-large"),
        order_claim(CHUNKS, PARTS_OF_SPEECH, "3.39 and 3.79 in BERT-large, of all constituents"),
        order_claim(ENTITIES, PARTS_OF_SPEECH, "3.39 and 4.64 in BERT-large"),
        order_claim(DEEP_ARGUMENTS, RELATIONS, "5.69 and 6.54 in BERT-large, of semantic roles"),
        *gain_claims(*EDGE_TASKS),
    )

    def probed_texts(self, inputs: AnalysisInput) -> tuple[Sequence[AnalysedText], EdgesByTask]:
        edges = {name: [find(t) for t in inputs.texts] for name, find in EDGE_TASKS.items()}
        return inputs.texts, edges

    def compared_tasks(self) -> Sequence[tuple[str, str]]:
        return (
            (RELATIONS, PARTS_OF_SPEECH),
            (CHUNKS, PARTS_OF_SPEECH),
            (ENTITIES, PARTS_OF_SPEECH),
            (DEEP_ARGUMENTS, RELATIONS),
        )
