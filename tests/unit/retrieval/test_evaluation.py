"""Scores of rankings against their definitions."""

import json
from math import log2
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.retrieval.evaluation import JudgedQuery, ranking_scores, read_judged_queries


def test_scores_are_their_definitions() -> None:
    others = [f"other{n}" for n in range(200)]
    rankings = [
        ["a", *others[:99]],
        [others[0], "b", others[1], "c"],
        [*others[:50], "d"],
        [],
    ]
    relevant = [{"a"}, {"b", "c", "missing"}, {"d"}, {"e"}]
    scores = {name: interval.value for name, interval in ranking_scores(rankings, relevant).items()}
    ideal = 1 + 1 / log2(3) + 1 / log2(4)
    assert scores["ndcg@10"] == pytest.approx((1 + (1 / log2(3) + 1 / log2(5)) / ideal) / 4)
    assert scores["mrr@10"] == pytest.approx((1 + 1 / 2) / 4)
    assert scores["recall@1"] == pytest.approx(1 / 4)
    assert scores["recall@10"] == pytest.approx((1 + 2 / 3) / 4)
    assert scores["recall@100"] == pytest.approx((1 + 2 / 3 + 1) / 4)


def test_intervals_are_over_queries() -> None:
    rankings = [["a"] if n % 4 else ["b"] for n in range(400)]
    interval = ranking_scores(rankings, [{"a"}] * 400)["recall@1"]
    half = 1.96 * (0.25 * 0.75 / 400) ** 0.5
    assert interval.low == pytest.approx(0.75 - half, abs=0.01)
    assert interval.high == pytest.approx(0.75 + half, abs=0.01)


def test_judged_queries_are_read_from_tables(tmp_path: Path) -> None:
    rows = [{"text": "one", "relevant": ["a", 2]}, {"text": "two", "relevant": "b"}]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "spaces.jsonl").write_text(json.dumps({"text": "one", "relevant": "doc 1"}))
    (query,) = read_judged_queries(tmp_path / "spaces.jsonl", "text", None)
    assert query.relevant == {"doc 1"}
    (tmp_path / "q.tsv").write_text("relevant\ttext\na 2\tone\nb\ttwo\n")
    expected = [JudgedQuery("one", frozenset({"a", "2"})), JudgedQuery("two", frozenset({"b"}))]
    for name in ("q.jsonl", "q.tsv"):
        assert list(read_judged_queries(tmp_path / name, "text", None)) == expected
    for content, message in (
        ({"text": "one"}, "line 1: no column 'relevant' with ids"),
        ({"text": "one", "relevant": 0.5}, "line 1: 'relevant' is not a list of ids: 0.5"),
        ({"text": "one", "relevant": ""}, "line 1: 'relevant' is not a list of ids: ''"),
        ({"text": "", "relevant": "a"}, "line 1: 'text' is not a text"),
    ):
        (tmp_path / "bad.jsonl").write_text(json.dumps(content) + "\n")
        with pytest.raises(UserError, match=message):
            list(read_judged_queries(tmp_path / "bad.jsonl", "text", None))
    (tmp_path / "q.txt").write_text("one\n")
    with pytest.raises(UserError, match="plain text: relevant texts need a table"):
        list(read_judged_queries(tmp_path / "q.txt", "text", None))
