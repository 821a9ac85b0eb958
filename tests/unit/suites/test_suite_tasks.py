"""Kinds of tasks in a suite: what they read, and that scores are those of independent sums."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from bertwright.core.errors import UserError
from bertwright.models.text_model import TextModel
from bertwright.retrieval.wordnet import load_synsets
from bertwright.suites.suite import EvaluationSuite
from bertwright.suites.tasks import PreparedTask
from bertwright.suites.tasks import probe as probes
from bertwright.suites.tasks.pairs import FactsTask, PairTemplate, PreparedPairs
from bertwright.suites.tasks.probe import fit_probe, probe_features
from bertwright.suites.tasks.retrieval import TextRetrievalTask
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.zero_shot.minimal_pairs import MinimalPair, read_minimal_pairs


def prepared(suite: EvaluationSuite, data: Path, name: str) -> PreparedTask:
    return suite.tasks[name].prepare(data)


def score(task: PreparedTask, predictions) -> float:
    sums = task.sums(predictions)
    return float(sums.statistic(sums.values.sum(0)))


def test_pairs_of_every_format(suite: EvaluationSuite, data: Path) -> None:
    grammar = prepared(suite, data, "grammar").pairs
    everything = read_minimal_pairs(data / "grammar.jsonl")
    assert Counter(pair.paradigm for pair in grammar) == {"number": 2, "order": 2, "case": 2}
    assert {*grammar} < {*everything}
    assert prepared(suite, data, "articles").pairs == [
        MinimalPair("A robin is an animal.", "A robin is a tree.", "true"),
        MinimalPair("An oak is a tree.", "An oak is an animal.", "true"),
    ]
    facts = prepared(suite, data, "facts").pairs
    answers = dict(enumerate(("red", "green", "blue", "red")))
    for number, pair in enumerate(facts):
        assert pair.good == f"The {number} river is {answers[number]}."
        wrong = pair.bad.removeprefix(f"The {number} river is ").removesuffix(".")
        assert wrong in {*answers.values()} - {answers[number]}


def test_columns_of_templates_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "table.tsv").write_text("a.b\ta[0]\t0\nred\tgreen\tblue\n")
    template = PairTemplate(file="table.tsv", good="{{{a.b}}} {a[0]}", bad="{0}")
    assert template.pairs(tmp_path, "p") == [MinimalPair("{red} green", "blue", "p")]


@pytest.mark.parametrize("value", [None, ["red"], True])
def test_sentences_are_made_of_texts_and_numbers(tmp_path: Path, value: Any) -> None:
    fact = {"masked_sentences": ["It is [MASK]."], "obj_label": "red", "relation": "r"}
    rows = [fact, {**fact, "obj_label": 3}, {**fact, "obj_label": value}]
    (tmp_path / "facts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    assert [pair.bad for pair in FactsTask(file="facts.jsonl").read_pairs(tmp_path)] == [
        "It is 3.",
        "It is red.",
    ]
    (tmp_path / "facts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    message = r"facts\.jsonl line 3: 'obj_label' is not a text"
    with pytest.raises(UserError, match=message):
        FactsTask(file="facts.jsonl").read_pairs(tmp_path)
    with pytest.raises(UserError, match=message):
        PairTemplate(file="facts.jsonl", good="{obj_label}", bad="{relation}").pairs(tmp_path, "p")


def test_pairs_of_a_paradigm_are_resampled_together() -> None:
    pairs = [MinimalPair(str(n), str(-n), f"p{n % 3}") for n in range(1, 13)]
    margins = [1.0 if n % 3 == 0 else 0.0 if n == 1 else -1.0 for n in range(1, 13)]
    task = PreparedPairs(pairs, resamples_paradigms=True)
    assert task.sums(margins).values.shape == (3, 2)
    assert PreparedPairs(pairs, resamples_paradigms=False).sums(margins).values.shape == (12, 2)
    assert score(task, margins) == pytest.approx(1 / 3)  # a tie is wrong
    assert task.parts(margins) == {"p1": 0.0, "p2": 0.0, "p0": 1.0}


def test_similarity_is_spearman_of_cosines(
    suite: EvaluationSuite, data: Path, model: TextModel
) -> None:
    task = prepared(suite, data, "likeness")
    u, v = model.embed(task.firsts), model.embed(task.seconds)
    cosines = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
    assert np.allclose(task.predict(model), cosines, atol=1e-5)
    expected = spearmanr(task.references, cosines).statistic
    assert score(task, cosines.tolist()) == pytest.approx(expected, abs=1e-9)


def test_retrieval_ranks_all_relevant_texts_among_the_set_number(
    suite: EvaluationSuite, data: Path, model: TextModel
) -> None:
    task = prepared(suite, data, "glosses")
    ids = {text.id for text in task.retrieval.texts}
    assert len(ids) == 60
    assert all(query.relevant <= ids for query in task.retrieval.queries)
    perfect = [[*query.relevant] for query in task.retrieval.queries]
    assert score(task, perfect) == 1.0
    second = [["none", *ranking] for ranking in perfect]
    assert score(task, second) == pytest.approx(1 / np.log2(3))
    search = prepared(suite, data, "search")
    by_words = search.predict_from_words()
    assert all(len({*ranking}) == len(ranking) for ranking in by_words)
    vectors = {name: model.embed(getattr(search, name)) for name in ("queries", "texts")}
    unit = {k: v / np.linalg.norm(v, axis=1, keepdims=True) for k, v in vectors.items()}
    best = (unit["queries"] @ unit["texts"].T).argmax(1)
    assert [ranking[0] for ranking in search.predict(model)] == [
        search.retrieval.texts[index].id for index in best
    ]


def test_texts_of_one_id_are_refused(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text(
        '{"id": 1, "body": "a"}\n{"id": 2, "body": "b"}\n{"id": "1", "body": "c"}\n'
    )
    (tmp_path / "queries.jsonl").write_text('{"body": "a", "relevant": [1]}\n')
    task = TextRetrievalTask(texts="texts.jsonl", queries="queries.jsonl", column="body")
    with pytest.raises(UserError, match=r"texts\.jsonl: several texts have the id '1'"):
        task.prepare(tmp_path)


def test_queries_without_a_relevant_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('{"id": 1, "text": "a"}\n{"id": 2, "text": "b"}\n')
    (tmp_path / "queries.jsonl").write_text(
        '{"text": "a", "relevant": [1, 9]}\n{"text": "c", "relevant": [3]}\n'
    )
    task = TextRetrievalTask(texts="texts.jsonl", queries="queries.jsonl")
    with pytest.raises(UserError, match=r"no text in .*texts\.jsonl is relevant to the query 'c'"):
        task.prepare(tmp_path)


def test_probe_is_logistic_regression_on_vectors_of_both_texts(
    suite: EvaluationSuite, data: Path, model: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = [Example("a red bird", "a bird"), Example("the river", "an old house")]
    u, v = (model.embed([getattr(e, name) for e in examples]) for name in ("text", "pair"))
    expected = np.concatenate([np.abs(u - v), u * v], axis=1)
    assert np.array_equal(probe_features(model.embed, examples), expected)
    monkeypatch.setattr(probes, "INVERSE_L2_GRID", (0.1,))
    task = prepared(suite, data, "noise")
    train, dev = (probe_features(model.embed, part) for part in (task.train, task.dev))
    scaler = StandardScaler().fit(train)
    classifier = LogisticRegression(C=0.1, max_iter=1000)
    classifier.fit(scaler.transform(train), [e.label for e in task.train])
    assert task.predict(model) == classifier.predict(scaler.transform(dev)).tolist()
    assert len(task.train) == 120
    assert task.chance == pytest.approx(np.mean([e.label == "0" for e in task.dev]), abs=0.2)


def test_probe_selects_its_penalty_by_cross_validation() -> None:
    rng = np.random.default_rng(0)
    labels = [str(n % 2) for n in range(200)]
    noise = rng.normal(size=(200, 100)).astype(np.float32)
    signal = noise.copy()
    signal[:, 0] += 30.0 * (np.arange(200) % 2)
    penalties = [
        fit_probe(features, labels).best_params_["logisticregression__C"]
        for features in (noise, signal)
    ]
    assert penalties[0] < penalties[1]
    rare = ["1" if n % 10 == 0 else "0" for n in range(200)]
    assert {*fit_probe(noise, rare).predict(noise)} == {"0"}
    assert {*fit_probe(noise, rare, "matthews").predict(noise)} == {"0", "1"}
    assert fit_probe(noise[:3], ["a", "a", "b"]).predict(noise[:3]).tolist() == ["a", "a", "b"]
    with pytest.raises(UserError, match="have the class 'a': raise train_examples"):
        fit_probe(noise[:2], ["a", "a"])


@pytest.mark.parametrize("key", ["id", "words", "gloss", "examples"])
def test_a_damaged_synset_is_named(tmp_path: Path, key: str) -> None:
    synset = {"id": "1", "words": ["oak"], "gloss": "a tree", "examples": []}
    del synset[key]
    with gzip.open(tmp_path / "synsets.jsonl.gz", "wt") as stream:
        stream.write(json.dumps(synset))
    with pytest.raises(UserError, match=rf"line 1: no key '{key}'"):
        load_synsets(tmp_path)
