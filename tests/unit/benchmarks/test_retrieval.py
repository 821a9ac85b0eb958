"""Retrieval over a small WordNet: tasks, rows, and what is kept."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.retrieval import compare, million, systems
from bertwright.core.errors import UserError
from bertwright.retrieval import wordnet
from bertwright.testing.toy import toy_text_model
from commands import invoke

SYNSETS: list[dict[str, Any]] = [
    {
        "id": f"n{number:08d}",
        "words": [f"word{number}", f"other{number % 7}"],
        "gloss": f"the thing with number {number}",
        "examples": [f"here is number {number}"] * (number % 2),
    }
    for number in range(120)
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with gzip.open(tmp_path / wordnet.SYNSETS_FILE, "wt") as stream:
        stream.writelines(json.dumps(synset) + "\n" for synset in SYNSETS)
    return tmp_path


def test_queries_are_held_out_and_name_their_texts() -> None:
    words, glosses = wordnet.retrieval_tasks(SYNSETS, 1000)
    held_out = [synset for synset in SYNSETS if wordnet.is_held_out(synset)]
    assert 0 < len(held_out) < len(SYNSETS) / 4
    assert len(words.texts) == 120 + 7
    assert {q.text: set(q.relevant) for q in words.queries} == {
        synset["gloss"]: set(synset["words"]) for synset in held_out
    }
    by_id = {text.id: text.text for text in glosses.texts}
    assert len(by_id) == 120
    assert {q.text: {by_id[i] for i in q.relevant} for q in glosses.queries} == {
        example: {synset["gloss"]} for synset in held_out for example in synset["examples"]
    }
    pairs = {query for query, _ in wordnet.training_pairs(SYNSETS)}
    assert not pairs & {query.text for task in (words, glosses) for query in task.queries}
    assert len(wordnet.retrieval_tasks(SYNSETS, 3)[0].queries) == 3


def test_every_system_has_a_row_per_task_that_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy_text_model([synset["gloss"] for synset in SYNSETS]).save(tmp_path / "toy")
    compared = systems.systems_of([tmp_path / "toy"])
    tasks = wordnet.retrieval_tasks(SYNSETS, 5)
    logged: list[str] = []
    rows = compare.compare(tasks, compared, tmp_path, logged.append)
    assert len(logged) == len(rows) == 2 * 4
    assert [row["system"] for row in rows[:4]] == [
        "BM25",
        "toy, dense",
        "toy, dense int8",
        "toy, hybrid",
    ]
    for row in rows:
        assert row.keys() == compare.COLUMNS.keys()
        assert row["interval"][0] <= row["ndcg@10"] <= row["interval"][1]
        assert row["index_bytes"] > 0
        assert row["search_microseconds"] > 0
    by_name = {(row["task"], row["system"]): row["ndcg@10"] for row in rows}
    # Each example shares its number with one gloss, and no gloss with its words.
    assert by_name["glosses from examples", "BM25"] > 0.9
    assert by_name["words from glosses", "BM25"] == 0
    assert compare.compare(tasks, compared, tmp_path, logged.append) == rows
    assert len(logged) == 8
    plain = systems.systems_of([tmp_path / "toy"], with_variants=False)
    assert [system.name for system in plain] == ["BM25", "toy, dense"]
    with pytest.raises(UserError, match="two models are called toy"):
        systems.systems_of([tmp_path / "toy", tmp_path / "toy"])


def test_many_texts_are_numbered_and_indexed(tmp_path: Path) -> None:
    words: list[str] = []

    def run(arguments) -> int:
        words.extend(arguments)
        invoke(*arguments)
        return 7

    compared = systems.systems_of([])
    rows = million.compare(SYNSETS, compared, 200, tmp_path, lambda _: None, run)
    assert rows[0]["peak_bytes"] == 7
    assert rows[0]["texts"] == 200
    assert rows[0].keys() == million.COLUMNS.keys()
    assert words[-4:] == ["--kind", "bm25", "--stop-words", "en"]
    lines = (tmp_path / "200.jsonl").read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    assert len({*texts}) == len(texts) == 200
    assert texts[180] == "the thing with number 0 180"


def test_the_peak_memory_is_that_of_the_process() -> None:
    def measure(size: int, exit_code: int = 0) -> int:
        code = f"import sys; print('text'); block = b'1' * {size}; sys.exit({exit_code})"
        return million.run_measured([], ("-c", code))

    with pytest.raises(UserError, match="failed: see its message above"):
        measure(1, exit_code=3)
    small, large = measure(1), measure(50_000_000)
    assert 45_000_000 < large - small < 55_000_000


def test_the_command_writes_training_pairs_and_refuses_other_folders(data: Path) -> None:
    words = ["retrieval", "-o", str(data / "out")]
    pairs = ["--data", str(data), "--training-pairs", str(data / "train.tsv")]
    result = CliRunner().invoke(app, [*words, *pairs])
    assert result.exit_code == 0, result.output
    lines = (data / "train.tsv").read_text().splitlines()
    assert lines[0] == "text\tpair"
    assert len(lines) - 1 == len(list(wordnet.training_pairs(SYNSETS)))
    error = CliRunner().invoke(app, [*words, "--data", str(data / "none")]).exception
    assert isinstance(error, UserError)
    assert "name the folder of WordNet with --data" in str(error)
