"""Attention to certain words and along certain links (Kovaleva et al. 2019, section 4.2)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from bertwright.analysis.core.activations import ActivationBatch
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.result import (
    AnalysisFinding,
    AnalysisResult,
    BaselineValue,
    StoredResult,
    interval_bounds,
    ratio_finding,
)
from bertwright.analysis.core.texts import missing_trees
from bertwright.analysis.syntax.relation_heads import is_significantly_better
from bertwright.core.rng import stream_key, uniform
from bertwright.core.significance import (
    FloatArray,
    benjamini_hochberg,
    bootstrap_ratio,
    sign_flip_test,
    split_halves,
)
from bertwright.tasks.formats.dependency_trees import DependencyTree

NEGATIONS = frozenset({"not", "n't", "no", "never", "nobody", "nothing", "none", "neither", "nor"})

WORD_FEATURES = ("nouns", "verbs", "pronouns", "subjects", "objects", "negations")
LINK_FEATURES = {"subject to verb": "nsubj", "object to verb": "obj"}
"""Features of the attended word, and relations of links."""

DIFFERENCE_DIGITS = 6
"""Digits of a difference: rounding errors can have the same sign in every sentence."""


def _num_significant(names: Sequence[str], result: StoredResult) -> Mapping[str, Any] | None:
    findings = [f for f in result.findings if f["metric"] in names]
    num_significant = sum(map(is_significantly_better, findings))
    return result.computed_finding(num_significant) if findings else None


class AttentionFeatures(StreamingAnalysis):
    """Whether a head attends to certain words, or along certain links, more than to others.

    For nouns, verbs, pronouns, subjects, objects and negations of a sentence: the largest attention
    that one of them gets, averaged over all words, minus that of as many random words. For links of
    subjects and objects to their verbs: the largest attention along one, minus that of as many
    pairs at the same distance. Baselines are corrected by the difference that uniform attention
    would give. The best head is chosen on half of the sentences and tested on the other half.
    Features in fewer than ``min_sentences`` of them are skipped. Relations match exactly, without
    subtypes.
    """

    kind: Literal["attention-features"] = "attention-features"
    min_sentences: int = Field(default=10, ge=2)
    survey_id = "B49"
    group = "syntax"
    title = "Do heads attend to nouns, verbs or negations, or along subject and object links?"
    source = "Kovaleva et al. 2019"
    taps = ("blocks.*.attention.weights",)
    claims = (
        Claim(
            "for some word types a head attends to them more than to others",
            "small compared with separators",
            partial(_num_significant, WORD_FEATURES),
            baseline_name="none",
        ),
        Claim(
            "for some links a head attends along them more than along others",
            "2 of 144 heads, for frames",
            partial(_num_significant, tuple(LINK_FEATURES)),
            baseline_name="none",
        ),
    )
    plots = (FindingBars("attention of the best head", ""),)

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        return missing_trees(inputs.texts) or super().not_applicable(inputs)

    def consumer(self, inputs: AnalysisInput) -> "AttentionFeaturesConsumer":
        return AttentionFeaturesConsumer(inputs, self.min_sentences)


class AttentionFeaturesConsumer:
    """The consumer of attention to features and baselines, (2, features, N, layers, heads).

    nan where a sentence lacks the feature.
    """

    taps = AttentionFeatures.taps

    def __init__(self, inputs: AnalysisInput, min_sentences: int) -> None:
        self.min_sentences, self.seed = min_sentences, inputs.seed
        model, self.feature_names = inputs.model, (*WORD_FEATURES, *LINK_FEATURES)
        num_features = len(self.feature_names)
        shape = (2, num_features, len(inputs.texts), model.num_layers, model.num_heads)
        self.feature_attention = np.full(shape, np.nan, np.float32)

    def update(self, batch: ActivationBatch) -> None:
        """Measure attention to the features in a batch."""
        for layer in range(self.feature_attention.shape[3]):
            weights, uniform_weights = batch.attention(layer), batch.uniform_attention(layer)
            for index, number in enumerate(batch.text_indices):
                tree, size = batch.texts[index].source, len(batch.texts[index].words)
                assert isinstance(tree, DependencyTree)
                between = batch.word_attention(index, weights[index])
                uniform_between = batch.word_attention(index, uniform_weights[index])
                values = self.feature_attention[:, :, number, layer]
                for feature, words in enumerate(feature_words(tree, size).values()):
                    if 0 < len(words) < size:
                        others = self._sample_words(number, feature, size)[: len(words)]
                        values[:, feature] = attention_with_baseline(
                            max_received_attention, between, uniform_between, words, others
                        )
                links_by_feature = feature_links(tree, size).values()
                for feature, links in enumerate(links_by_feature, start=len(WORD_FEATURES)):
                    if pairs := equally_distant_pairs(links, size):
                        values[:, feature] = attention_with_baseline(
                            max_link_attention, between, uniform_between, links, pairs
                        )

    def result(self) -> AnalysisResult:
        """Return the best head of each feature, chosen on one half and tested on the other."""
        train, test = split_halves(self.feature_attention.shape[2], self.seed)
        findings: list[AnalysisFinding] = []
        p_values: list[float] = []
        for feature, name in enumerate(self.feature_names):
            values, baselines = self.feature_attention[:, feature].astype(np.float64)
            has_feature = ~np.isnan(values[:, 0, 0])
            chosen_on, tested_on = (half[has_feature[half]] for half in (train, test))
            if len(tested_on) < self.min_sentences or not len(chosen_on):
                continue
            differences = np.round(values - baselines, DIFFERENCE_DIGITS)
            mean = differences[chosen_on].mean(0)
            layer, head = map(int, np.unravel_index(mean.argmax(), mean.shape))
            best, others, gain = (
                array[tested_on, layer, head] for array in (values, baselines, differences)
            )
            difference = bootstrap_ratio(gain, seed=self.seed)
            p_values.append(sign_flip_test(gain, seed=self.seed))
            baseline = BaselineValue("as many other words", float(others.mean()))
            finding = ratio_finding(
                name, best, seed=self.seed, layer=layer, head=head, baseline=baseline
            )
            bounds = interval_bounds(difference)
            findings.append(replace(finding, p_value=p_values[-1], difference_interval=bounds))
        adjusted = benjamini_hochberg(p_values) if p_values else ()
        counts = (~np.isnan(self.feature_attention)).sum(2)
        return AnalysisResult(
            [
                replace(finding, adjusted_p_value=float(value), num_tests=len(p_values))
                for finding, value in zip(findings, adjusted, strict=True)
            ],
            {"heads": np.nan_to_num(self.feature_attention).sum(2) / np.maximum(counts, 1)},
        )

    def _sample_words(self, text_index: int, feature_index: int, num_words: int) -> list[int]:
        drawn = uniform(
            stream_key(self.seed, "other words", feature_index), text_index, np.arange(num_words)
        )
        return [int(word) for word in np.argsort(drawn)]


def feature_words(tree: DependencyTree, num_words: int) -> dict[str, list[int]]:
    """Return the indices of the words with each feature among the first ``num_words``."""

    def indices(holds: "list[bool]") -> list[int]:
        return [word for word, is_feature in enumerate(holds[:num_words]) if is_feature]

    return {
        "nouns": indices([tag in ("NOUN", "PROPN") for tag in tree.tags]),
        "verbs": indices([tag == "VERB" for tag in tree.tags]),
        "pronouns": indices([tag == "PRON" for tag in tree.tags]),
        "subjects": indices([relation == "nsubj" for relation in tree.relations]),
        "objects": indices([relation == "obj" for relation in tree.relations]),
        "negations": indices([word.lower() in NEGATIONS for word in tree.words]),
    }


def feature_links(tree: DependencyTree, num_words: int) -> dict[str, list[tuple[int, int]]]:
    """Return the links of each kind among the first ``num_words``, from dependent to head."""
    return {
        name: [
            (word, tree.heads[word])
            for word in range(num_words)
            if tree.relations[word] == relation and 0 <= tree.heads[word] < num_words
        ]
        for name, relation in LINK_FEATURES.items()
    }


def equally_distant_pairs(links: list[tuple[int, int]], num_words: int) -> list[tuple[int, int]]:
    """Return for each link the nearest pair at the same distance that is no link itself."""
    pairs: list[tuple[int, int]] = []
    for word, head in links:
        others = [
            (other, other + head - word)
            for other in range(num_words)
            if 0 <= other + head - word < num_words and (other, other + head - word) not in links
        ]
        if others:
            pairs.append(min(others, key=lambda pair: abs(pair[0] - word)))
    return pairs


def attention_with_baseline(
    max_attention: Callable[[Tensor, Sequence[Any]], FloatArray],
    word_attention: Tensor,
    uniform_attention: Tensor,
    items: Sequence[Any],
    baseline_items: Sequence[Any],
) -> tuple[FloatArray, FloatArray]:
    """Return the largest attention to the items and to the baseline items.

    The latter is corrected by the difference that uniform attention gives.
    """
    correction = max_attention(uniform_attention, items) - max_attention(
        uniform_attention, baseline_items
    )
    baseline = max_attention(word_attention, baseline_items) + correction
    return max_attention(word_attention, items), baseline


def max_received_attention(word_attention: Tensor, words: Sequence[int]) -> FloatArray:
    """Return the largest mean attention that one of the words gets, (H,), from (H, W, W)."""
    return word_attention.mean(-2)[:, list(words)].amax(-1).double().cpu().numpy()


def max_link_attention(word_attention: Tensor, links: Sequence[tuple[int, int]]) -> FloatArray:
    """Return the largest attention along one of the links, in either direction, (H,)."""
    first, second = map(list, zip(*links, strict=True))
    both = word_attention[:, first, second].maximum(word_attention[:, second, first])
    return both.amax(-1).double().cpu().numpy()
