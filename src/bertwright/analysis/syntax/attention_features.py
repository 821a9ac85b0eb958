"""Attention to certain words and along syntactic links (Kovaleva et al. 2019, section 4.4)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from bertwright.analysis.core.activations import ActivationBatch, Measured, Measurements
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.requirements import missing_trees
from bertwright.analysis.core.result import (
    AnalysisResult,
    BaselineValue,
    Findings,
    StoredResult,
    adjust_p_values,
    interval_bounds,
)
from bertwright.analysis.syntax.relation_heads import is_significantly_better
from bertwright.core.rng import stream_key, uniform
from bertwright.core.significance import (
    FloatArray,
    bootstrap_ratio,
    sign_flip_test,
    split_halves,
)
from bertwright.tasks.formats.dependency_trees import DependencyTree

WORD_FEATURES = {
    "nouns": ("tag", {"NOUN", "PROPN"}),
    "verbs": ("tag", {"VERB"}),
    "pronouns": ("tag", {"PRON"}),
    "subjects": ("relation", {"nsubj"}),
    "objects": ("relation", {"obj"}),
    "negations": (
        "word",
        {"not", "n't", "no", "never", "nobody", "nothing", "none", "neither", "nor"},
    ),
}
LINK_FEATURES = {"subject to verb": "nsubj", "object to verb": "obj"}
"""Features of the attended word, and relations that are links."""
FEATURES = (*WORD_FEATURES, *LINK_FEATURES)

DIFFERENCE_DIGITS = 6
"""Digits of a difference to keep: rounding errors can have the same sign in every sentence."""


def _num_significant(names: Sequence[str], result: StoredResult) -> Mapping[str, Any] | None:
    findings = [f for f in result.findings if f["metric"] in names]
    num_significant = sum(map(is_significantly_better, findings))
    if not findings:
        return None
    return result.counted_finding(num_significant, len(findings), "features")


class AttentionFeatures(StreamingAnalysis):
    """Whether a head attends to certain words, or along certain links, more than to others.

    For nouns, verbs, pronouns, subjects, objects and negations of a sentence, the value is the
    largest attention that one of them receives, averaged over all words, minus the same for as many
    random words. For links from subjects and objects to their verbs, it is the largest attention
    along one of them, minus the same for as many word pairs at the same distance. Baselines are
    corrected by the difference that uniform attention would give. The best head is selected on half
    of the sentences and tested on the other half. Features in fewer than ``min_sentences``
    sentences are skipped. Relations match exactly, without subtypes.
    """

    kind: Literal["attention-features"] = "attention-features"
    min_sentences: int = Field(default=10, ge=2)
    survey_id = "B49"
    title = "Do heads attend to nouns, verbs or negations, or along subject and object links?"
    source = "Kovaleva et al. 2019"
    taps = ("blocks.*.attention.weights",)
    requires = (missing_trees,)
    claims = (
        Claim(
            "for some word types a head attends to them more than to others",
            "small compared with separators",
            partial(_num_significant, tuple(WORD_FEATURES)),
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

    def measure(self, inputs: AnalysisInput, batch: ActivationBatch) -> Measurements:
        model = inputs.model
        shape = (2, len(FEATURES), model.num_layers, model.num_heads)
        # nan if the sentence lacks the feature
        feature_attention = np.full((len(batch.texts), *shape), np.nan, np.float32)
        for layer in range(model.num_layers):
            weights, uniform_weights = batch.attention(layer), batch.uniform_attention(layer)
            for index, number in enumerate(batch.text_indices):
                tree, size = batch.texts[index].tree, len(batch.texts[index].words)
                between = batch.word_attention(index, weights[index])
                uniform_between = batch.word_attention(index, uniform_weights[index])
                values = feature_attention[index, :, :, layer]
                for feature, words in enumerate(feature_words(tree, size).values()):
                    if 0 < len(words) < size:
                        others = _sample_words(inputs.seed, number, feature, size)[: len(words)]
                        values[:, feature] = attention_with_baseline(
                            max_received_attention, between, uniform_between, words, others
                        )
                links_by_feature = feature_links(tree, size).values()
                for feature, links in enumerate(links_by_feature, start=len(WORD_FEATURES)):
                    if pairs := equally_distant_pairs(links, size):
                        values[:, feature] = attention_with_baseline(
                            max_link_attention, between, uniform_between, links, pairs
                        )
        return {"attention": feature_attention}

    def summarise(self, inputs: AnalysisInput, measured: Measured) -> AnalysisResult:
        # (2, features, N, layers, heads)
        feature_attention = np.stack(measured["attention"], 2)
        train, test = split_halves(len(inputs.texts), inputs.seed)
        findings = Findings(inputs.seed)
        for feature, name in enumerate(FEATURES):
            values, baselines = feature_attention[:, feature].astype(np.float64)
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
            findings.add_ratio(
                name,
                best,
                layer=layer,
                head=head,
                baseline=BaselineValue("as many other words", float(others.mean())),
                p_value=sign_flip_test(gain, seed=inputs.seed),
                difference_interval=interval_bounds(bootstrap_ratio(gain, seed=inputs.seed)),
            )
        counts = (~np.isnan(feature_attention)).sum(2)
        return AnalysisResult(
            adjust_p_values(findings),
            {"heads": np.nan_to_num(feature_attention).sum(2) / np.maximum(counts, 1)},
        )


def _sample_words(seed: int, text_index: int, feature_index: int, num_words: int) -> list[int]:
    key = stream_key(seed, "other words", feature_index)
    return np.argsort(uniform(key, text_index, np.arange(num_words))).tolist()


def feature_words(tree: DependencyTree, num_words: int) -> dict[str, list[int]]:
    """Return the indices of the words with each feature, among the first ``num_words`` words."""
    columns = {
        "tag": tree.tags,
        "relation": tree.relations,
        "word": [word.lower() for word in tree.words],
    }
    return {
        name: [n for n, value in enumerate(columns[column][:num_words]) if value in values]
        for name, (column, values) in WORD_FEATURES.items()
    }


def feature_links(tree: DependencyTree, num_words: int) -> dict[str, list[tuple[int, int]]]:
    """Return the links of each kind among the first ``num_words`` words: (dependent, head)."""
    return {
        name: [
            (word, tree.heads[word])
            for word in range(num_words)
            if tree.relations[word] == relation and 0 <= tree.heads[word] < num_words
        ]
        for name, relation in LINK_FEATURES.items()
    }


def equally_distant_pairs(links: list[tuple[int, int]], num_words: int) -> list[tuple[int, int]]:
    """Return for each link the nearest word pair at the same distance that is not a link."""
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
    """Return the largest attention to the items, and to the baseline items.

    The latter is corrected by the difference that uniform attention would give.
    """
    correction = max_attention(uniform_attention, items) - max_attention(
        uniform_attention, baseline_items
    )
    baseline = max_attention(word_attention, baseline_items) + correction
    return max_attention(word_attention, items), baseline


def max_received_attention(word_attention: Tensor, words: Sequence[int]) -> FloatArray:
    """Return the largest mean attention (H,) that one of the words receives in (H, W, W)."""
    return word_attention.mean(-2)[:, list(words)].amax(-1).double().cpu().numpy()


def max_link_attention(word_attention: Tensor, links: Sequence[tuple[int, int]]) -> FloatArray:
    """Return the largest attention along one of the links, in either direction, (H,)."""
    first, second = map(list, zip(*links, strict=True))
    both = word_attention[:, first, second].maximum(word_attention[:, second, first])
    return both.amax(-1).double().cpu().numpy()
