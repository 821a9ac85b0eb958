"""``bertwright index`` and ``bertwright search`` on the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bertwright.cli import app as application
from bertwright.core.errors import UserError
from bertwright.interop.loading import load
from bertwright.tasks.catalogue import find_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.testing.toy import toy_text_model
from commands import invoke, invoke_json

TEXTS = [
    "a red bird in the old tree",
    "the small house by the river",
    "an old man reads a long book",
    "two dogs run through the garden",
]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with texts, queries, a model, and a cross-encoder."""
    folder = tmp_path_factory.mktemp("search")
    rows = [{"id": f"t{n}", "text": text} for n, text in enumerate(TEXTS)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "more.txt").write_text("a blue bird sings\n\nthe river is long\n")
    queries = [{"text": text, "relevant": f"t{n}"} for n, text in enumerate(TEXTS)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    model = toy_text_model(TEXTS)
    model.save(folder / "model")
    examples = [Example(text, TEXTS[0], "1") for text in TEXTS]
    finetune(model, find_task("rank"), train=examples, dev=examples, epochs=0).model.save(
        folder / "ranker"
    )
    return folder


def test_texts_are_indexed_searched_and_added(work: Path, tmp_path: Path) -> None:
    index, model = tmp_path / "index", work / "model"
    report = invoke_json("index", work / "texts.jsonl", "-o", index, "--model", model)
    assert (report["kind"], report["texts"], report["segments"]) == ("dense", 4, 1)
    report = invoke_json("index", work / "more.txt", "-o", index, "--add")
    assert (report["texts"], report["segments"]) == (6, 2)
    (result,) = invoke_json("search", index, TEXTS[2], "--top", 2)["results"]
    assert result["hits"][0]["id"] == "t2"
    assert result["hits"][0]["score"] == pytest.approx(1, abs=1e-3)
    assert len(result["hits"]) == 2
    shown = invoke("search", index, "a blue bird sings", TEXTS[0]).stdout
    assert "more.txt:1  a blue bird sings" in shown.splitlines()[1]
    assert "t0  a red bird in the old tree" in shown


def test_bytes_that_are_no_text_are_counted(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_bytes(b"a caf\xe9\nred\0 birds\n\n")
    result = invoke("index", tmp_path / "texts.txt", "-o", tmp_path / "index", "--kind", "bm25")
    assert "left out 1 rows without text" in result.stderr
    assert "the texts hold 2 invalid or NUL bytes: convert them to UTF-8" in result.stderr


def test_files_of_queries_give_a_line_or_a_score_each(work: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    invoke("index", work / "texts.jsonl", "-o", index, "--kind", "bm25")
    lines = invoke("search", index, "--queries", work / "queries.jsonl", "-n", 1).stdout
    results = [json.loads(line) for line in lines.splitlines()]
    assert [result["hits"][0]["id"] for result in results] == ["t0", "t1", "t2", "t3"]
    assert [result["query"] for result in results] == TEXTS
    scores = invoke_json("search", index, "--queries", work / "queries.jsonl", "--evaluate")
    assert scores["queries"] == 4
    assert scores["ndcg@10"] == {"mean": 1, "interval": [1, 1]}
    assert "no text shares a word" in invoke("search", index, "zebra").stdout
    (tmp_path / "one.jsonl").write_text(json.dumps({"text": TEXTS[0], "relevant": "t0"}))
    (tmp_path / "none.jsonl").touch()
    scores = invoke_json("search", index, "--queries", tmp_path / "one.jsonl", "--evaluate")
    assert scores["ndcg@10"] == {"mean": 1, "interval": None}
    with pytest.raises(UserError, match=r"none\.jsonl holds no queries"):
        invoke("search", index, "--queries", tmp_path / "none.jsonl", "--evaluate")


def test_long_texts_are_shown_up_to_a_space_if_there_is_one(tmp_path: Path) -> None:
    unspaced = "bird" + "\u9ce5" * 300
    (tmp_path / "long.txt").write_text(f"bird {'word ' * 40}\n\n{unspaced}\n", encoding="utf-8")
    invoke("index", tmp_path / "long.txt", "-o", tmp_path / "index", "--kind", "bm25")
    for query, beginning in (("bird", "bird word"), (unspaced, unspaced[:50])):
        (line,) = invoke("search", tmp_path / "index", query, "-n", 1).stdout.splitlines()
        assert f"  {beginning}" in line
        assert line.endswith(" ...")


@pytest.mark.linux
def test_bytes_that_are_not_utf8_are_escaped(tmp_path: Path) -> None:
    names = [os.fsencode(tmp_path) + b"/caf\xe9.txt", os.fsencode(tmp_path / "index")]
    with open(names[0], "w") as file:
        file.write("a red bird\n")
    program = [sys.executable, "-m", "bertwright"]
    index = [*program, "index", names[0], "-o", names[1], "--kind", "bm25"]
    subprocess.run(index, check=True, capture_output=True)
    search = [*program, "search", names[1], b"caf\xe9", "bird"]
    shown = subprocess.run(search, check=True, capture_output=True).stdout.decode()
    assert shown.startswith("caf\\udce9\n")
    assert "  caf\\xe9.txt:1  a red bird" in shown


def test_a_cross_encoder_sorts_the_texts_again(work: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    invoke(
        "index", work / "texts.jsonl", "-o", index, "--model", work / "model", "--kind", "hybrid"
    )
    query, ranker = "the old bird", load(work / "ranker")
    (result,) = invoke_json("search", index, query, "--rerank", work / "ranker", "-n", 3)["results"]
    relevance = [p.value for p in ranker.predict([(query, text) for text in TEXTS])]
    order = sorted(range(4), key=lambda n: -relevance[n])[:3]
    assert [hit["id"] for hit in result["hits"]] == [f"t{n}" for n in order]
    scores = [hit["score"] for hit in result["hits"]]
    assert scores == pytest.approx([relevance[n] for n in order], abs=1e-3)


def test_mistakes_are_one_sentence(
    work: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    index, texts, model = tmp_path / "index", work / "texts.jsonl", work / "model"
    invoke("index", texts, "-o", index, "--kind", "bm25")
    (tmp_path / "empty.txt").write_text("\n \n")
    new = ("-o", tmp_path / "new")
    cases = [
        (("index", tmp_path / "empty.txt", *new, "--kind", "bm25"), "no texts to index"),
        (("index", texts, *new), "an index needs a model: name its folder with --model"),
        (("index", texts, *new, "--kind", "dense"), "kind dense needs a model"),
        (("index", texts, *new, "--model", model, "--kind", "sparse"), "not sparse: use --kind"),
        (("index", texts, "-o", index, "--kind", "bm25"), "is a complete index: use --add"),
        (("index", texts, "-o", index, "--add", "--exact"), "leave --exact out"),
        (("index", "-", *new, "--kind", "bm25", "--resume"), "standard input is gone"),
        (("index", texts, *new, "--kind", "bm25", "--column", "gloss"), "no column 'gloss'"),
        (("search", index), "search needs a query"),
        (("search", index, " "), "a query is empty"),
        (("search", index, "a", "--evaluate"), "this is for --queries: leave --evaluate out"),
        (("search", index, "a", "--model", model), "bm25 uses no model: leave --model out"),
        (("search", index, "a", "--query-model", model), "leave --query-model out"),
        (("search", index, "a b", "--queries", texts), "leave 'a b' out"),
        (("search", index, "a", "--rerank", model), "is no cross-encoder"),
        (("search", tmp_path, "a"), "is no search index"),
        (("mine", index, "--pairs", texts, *new[:1], tmp_path / "new.tsv"), "name a .jsonl file"),
    ]
    for words, sentence in cases:
        monkeypatch.setattr(sys, "argv", ["bertwright", *map(str, words)])
        with pytest.raises(SystemExit, match="2"):
            application.main()
        error = capsys.readouterr().err
        assert sentence in error
        assert error.count("\n") == 1, error
        assert not (tmp_path / "new").exists(), words


def test_negatives_are_mined_for_the_training_of_a_retriever(work: Path, tmp_path: Path) -> None:
    index, pairs, mined = tmp_path / "index", tmp_path / "pairs.jsonl", tmp_path / "mined.jsonl"
    invoke("index", work / "texts.jsonl", "-o", index, "--kind", "bm25")
    rows = [{"question": text.split()[1], "answer": text} for text in TEXTS]
    rows += [{"question": "the", "answer": TEXTS[1]}]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("mine", index, "-o", mined, "--pairs", pairs, "--text", "question", "--pair", "answer")
    report = invoke_json(*words, "--label-with", work / "ranker", "--keep-all", "--negatives", 2)
    lines = [json.loads(line) for line in mined.read_text().splitlines()]
    assert report["lines"] == len(lines) > 0
    assert report["pairs"] == len(rows)
    for line in lines:
        assert line.keys() == {"text", "pair", "negative", "margin"}
        assert line["text"] in line["negative"].split()
        assert line["negative"] != line["pair"]
    columns = "--text", "text", "--pair", "pair", "--negative", "negative", "--label", "margin"
    training = "finetune", work / "model", "--task", "retrieval", "--train", mined, *columns
    invoke(*training, "-o", tmp_path / "retriever", "output_type.loss=margin-mse", "epochs=1")
    (tmp_path / "empty.jsonl").touch()
    for options, message in (
        (("--max-ratio", "0"), "no pair has a negative"),
        (("--keep-all", "--margin", "1"), "leave --margin out"),
        (("--generator", work / "ranker"), "writes the queries itself: leave --pairs out"),
        (("--pairs", tmp_path / "empty.jsonl"), "empty.jsonl has no pairs"),
    ):
        with pytest.raises(UserError, match=message):
            invoke(*words[:3], tmp_path / "none.jsonl", *words[4:], *options)
        assert not (tmp_path / "none.jsonl").exists()
