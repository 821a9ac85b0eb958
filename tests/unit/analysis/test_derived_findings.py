"""Differences, halves and baselines that analyses report follow from their arrays."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertwright.analysis.core.result import StoredResult
from full_suite import full_except

Expected = Mapping[str, float]


class Results:
    """The stored result of an analysis."""

    def __init__(self, stored: StoredResult) -> None:
        self.arrays = stored.arrays
        self.findings = stored.findings

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    def finding(self, metric: str) -> Mapping[str, Any]:
        (finding,) = [
            f
            for f in self.findings
            if f["metric"] == metric and f.get("layer") is None and f.get("head") is None
        ]
        return finding

    def value(self, metric: str) -> float:
        return self.finding(metric)["value"]

    def baseline(self, metric: str) -> float:
        return self.finding(metric)["baseline"]["value"]


def attention_mass(r: Results) -> Expected:
    tokens = ("opening", "separator", "punctuation", "self", "previous", "next")
    halves = {"first half": r["mass"][:1], "second half": r["mass"][1:]}
    return {
        f"{token}, {half}": values[..., n].mean()
        for half, values in halves.items()
        for n, token in enumerate(tokens)
    }


def attention_slopes(r: Results) -> Expected:
    halves = {"first half": r["gradient_sizes"][0], "second half": r["gradient_sizes"][1]}
    return {
        f"words minus {token}, {half}": (values[:, 2] - values[:, n]).mean()
        for half, values in halves.items()
        for n, token in enumerate(("opening", "separator"))
    }


def attention_explains(r: Results) -> Expected:
    most, other = r["without the most attended position"], r["without a random position"]
    return {
        "prediction change, most attended minus random position": (most - other).mean(),
        "attention change with the prediction kept": r["adversary"][:, 0].mean(),
        "largest prediction change of that": r["adversary"][:, 1].max(),
    }


def attention_flow(r: Results) -> Expected:
    last, rollout, flow = r["correlations"].mean(0)
    return {
        "correlation, last layer": last,
        "correlation, rollout": rollout,
        "correlation, flow": flow,
        "correlation, rollout minus last layer": rollout - last,
        "correlation, flow minus last layer": flow - last,
    }


def input_attribution(r: Results) -> Expected:
    names = ("gradient", "gradient times input", "integrated gradients")
    *drops, random = r["score_drops"].mean(1)
    expected = {"score drop, random tokens": random}
    for name, drop in zip(names, drops, strict=True):
        expected |= {f"score drop, {name}": drop, f"score drop, {name} minus random": drop - random}
    return expected


def agreement(r: Results) -> Expected:
    # A tie is half correct.
    fractions = {name: (0.5 + 0.5 * np.sign(values)).mean() for name, values in r.arrays.items()}
    difference = fractions["simple"] - fractions["attractor"]
    return {**fractions, "simple minus attractor": difference}


def facts(r: Results) -> Expected:
    correct, baseline = r["is_correct"].mean(), r["is_correct_baseline"].mean()
    assert r.baseline("precision at 1") == pytest.approx(baseline)
    return {
        "precision at 1": correct,
        "precision at 1, minus the most frequent answer": correct - baseline,
        "same answer when negated": r["is_same_when_negated"].mean(),
    }


def triggers(r: Results) -> Expected:
    accuracy, loss = (f"{name} with the trigger, masked tokens" for name in ("accuracy", "loss"))
    return {
        "accuracy, random minus searched triggers": r.baseline(accuracy) - r.value(accuracy),
        "loss, searched minus random triggers": r.value(loss) - r.baseline(loss),
        accuracy: r["accuracy_by_step"][0, -1],
    }


def sentence_vectors(r: Results) -> Expected:
    names = ("first", "last", "mean", "mean of words", "max", "mean of the last two layers")
    names += ("embeddings", "mean of words, centred")
    fractions = dict(zip(names, r["is_match"].mean(1), strict=True))
    centred = "mean of words, centred"
    return {
        **fractions,
        "mean minus first": fractions["mean"] - fractions["first"],
        f"{centred} minus mean of words": fractions[centred] - fractions["mean of words"],
    }


def head_importance(r: Results) -> Expected:
    fractions = r["fractions"].tolist()
    np.testing.assert_allclose(fractions, np.linspace(0, 1, 11))
    expected = {
        f"loss with {fraction:.0%} pruned by {name}": loss
        for name in ("importance", "oracle")
        for fraction, loss in zip(fractions, r[name], strict=True)
    }
    return {
        **expected,
        "loss increase with a fifth pruned": r["importance"][2] - r["importance"][0],
        "loss with half pruned, random order minus importance": (
            r["random"][:, 5].mean() - r["importance"][5]
        ),
    }


def learned_gates(r: Results) -> Expected:
    expected = {}
    for n, penalty in enumerate(r["penalties"].tolist()):
        end = f", penalty {penalty:g}"
        by_importance = r.value(f"loss increase by importance{end}")
        difference = by_importance - r.value(f"loss increase{end}")
        closed = (r["open_probabilities"][n] < 0.5).mean()
        expected |= {
            f"importance minus gates{end}": difference,
            f"fraction of heads closed{end}": closed,
        }
    return expected


def token_identity(r: Results) -> Expected:
    by_map, last = r["fraction_identified"].max(1), "linear map, last layer minus positions alone"
    return {
        "linear map, first layer minus last": by_map[0] - by_map[-1],
        last: by_map[-1] - r.baseline(last),
    }


def main_auxiliary(r: Results) -> Expected:
    after, fourth = r["main auxiliary after a clause"], r["fourth word"]
    return {
        # The upper half of embeddings and two layers is the last layer.
        "upper layers minus embeddings, after a clause": after[2] - after[0],
        "fourth word, embeddings minus last layer": fourth[0] - fourth[-1],
    }


def numbers(r: Results) -> Expected:
    name = "value, interpolated"
    (last,) = (f for f in r.findings if f["metric"] == name and f["layer"] == 2)
    return {
        "untrained minus trained, last layer": last["baseline"]["value"] - last["value"],
        "extrapolated minus interpolated, last layer": (
            r["value, extrapolated"][-1] - r["value, interpolated"][-1]
        ),
    }


def coreference(r: Results) -> Expected:
    expected = {}
    for finding in r.findings:
        metric = finding["metric"]
        if metric.startswith("best head minus "):
            other = metric.removeprefix("best head minus ")
            kind = metric.partition(", ")[2]
            (best,) = (f["value"] for f in r.findings if f["metric"] == f"best head, {kind}")
            expected[metric] = best - r.value(other)
    assert len(expected) == 16
    return expected


LAWS: Mapping[str, Callable[[Results], Expected]] = {
    "attention-patterns": lambda r: {
        f"fraction {name}": r["fractions"][..., n].mean()
        for n, name in enumerate(
            ("vertical", "diagonal", "vertical and diagonal", "block", "heterogeneous")
        )
    },
    "attention-mass": attention_mass,
    "attention-slopes": attention_slopes,
    "attention-entropy": lambda r: {
        "entropy, first half minus second half": (
            r["entropies"][0, :, 0] - r["entropies"][1, :, 0]
        ).mean()
    },
    "attention-rollout": lambda r: {
        "itself, first layer minus last": r["fractions"][0, 0] - r["fractions"][-1, 0]
    },
    "attention-explains": attention_explains,
    "attention-flow": attention_flow,
    "input-attribution": input_attribution,
    "agreement": agreement,
    "negation": lambda r: {
        "affirmed minus negated": np.subtract(*(r["differences"] > 0).mean(1)),
        "true completions preferred, affirmed": (r["differences"][0] > 0).mean(),
        "true completions preferred, negated": (r["differences"][1] > 0).mean(),
    },
    "facts": facts,
    "triggers": triggers,
    "word-senses": lambda r: {
        "nearest occurrence has the same sense, last layer minus first": (
            r["is_correct"][:, -1] - r["is_correct"][:, 0]
        ).mean()
    },
    "sentence-vectors": sentence_vectors,
    "head-importance": head_importance,
    "learned-gates": learned_gates,
    "effective-attention": lambda r: {
        "correlation, texts of 1 to 16 tokens": r["correlations"].mean()
    },
    "token-identity": token_identity,
    "token-mixing": lambda r: {
        "own contribution, last layer minus first": (
            r["own_contribution"][:, -1] - r["own_contribution"][:, 0]
        ).mean()
    },
    "attention-norms": lambda r: {
        "separator, second half, by weight minus by norm": (
            r["weight"][1, :, 1] - r["norm"][1, :, 1]
        ).mean(),
        "correlation of weight and norm": r["correlations"].mean(),
    },
    "main-auxiliary": main_auxiliary,
    "numbers": numbers,
    "word-positions": lambda r: {
        "position error, last layer minus embeddings": (
            r["position_error"][-1] - r["position_error"][0]
        )
    },
    "coreference": coreference,
}


LONG = ("coreference", "main-auxiliary", "numbers", "attention-explains")


@pytest.mark.parametrize("kind", full_except(LAWS, LAWS.keys() - LONG))
def test_findings_follow_from_arrays(small_run, kind: str) -> None:
    results = Results(small_run.result(kind))
    expected = LAWS[kind](results)
    assert expected
    actual = {metric: results.value(metric) for metric in expected}
    assert actual == pytest.approx(dict(expected), rel=1e-6, abs=1e-9)


def test_loss_increases_by_head_are_relative_to_the_whole_model(small_run) -> None:
    results = Results(small_run.result("single-heads"))
    total = results["num_targets"].sum()
    expected = (results["losses"].sum(-1) - results["full"].sum()) / total
    by_head = {(f["layer"], f["head"]): f["value"] for f in results.findings if "head" in f}
    assert by_head == pytest.approx(dict(np.ndenumerate(expected)))


@pytest.mark.parametrize("part", ["layer", "attention", "feed_forward"])
def test_layers_are_removed_one_at_a_time(small_run, part: str) -> None:
    results = Results(small_run.result("layer-redundancy"))
    metric = f"loss increase without {part.replace('_', '-')}"
    values = [f["value"] for f in results.findings if f["metric"] == metric]
    increases = (results[part] - results["full"]).sum(1)
    # The losses are sums over the targets of each text, whose number is not stored.
    assert np.sign(values).tolist() == np.sign(increases).tolist()
    assert values[0] * increases[1] == pytest.approx(values[1] * increases[0])
