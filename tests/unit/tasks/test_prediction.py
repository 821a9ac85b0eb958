"""Predictions for files and streams: one line per input, in order."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bertwright.core.errors import UserError
from bertwright.tasks import prediction
from bertwright.tasks.catalogue import find_task, table_task, tagging_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.prediction import predict_examples, predict_file, predict_lines
from small_tasks import TEXTS, assert_same_predictions, classes, pairs, tagged


@pytest.fixture
def model(pretrained) -> FineTunedModel:
    task = table_task("task", Columns("sentence"))
    return finetune(pretrained(), task, train=classes(), epochs=1).model


@pytest.fixture
def pair_model(pretrained) -> FineTunedModel:
    task = table_task("task", Columns("one", "two"))
    return finetune(pretrained(), task, train=pairs(), epochs=1).model


@pytest.fixture
def tagger(pretrained) -> FineTunedModel:
    return finetune(pretrained(), tagging_task("task"), train=tagged(), epochs=1).model


def test_stream_is_predicted_in_order_and_in_chunks(model, monkeypatch) -> None:
    monkeypatch.setattr(prediction, "CHUNK_SIZE", 5)
    whole = model.predict(TEXTS)
    pulled: list[str] = []

    def stream():
        for text in TEXTS:
            pulled.append(text)
            yield Example(text)

    predictions = predict_examples(model, stream())
    first = next(predictions)
    assert len(pulled) == 5
    records = [first, *predictions]
    assert [line["text"] for line in records] == TEXTS
    assert [line["prediction"] for line in records] == [p.value for p in whole]
    assert set(first) == {"text", "prediction", "probabilities"}
    assert set(first["probabilities"]) == {"old", "new"}


def test_what_is_resumed_is_batched_as_in_one_run(model, monkeypatch) -> None:
    monkeypatch.setattr(prediction, "CHUNK_SIZE", 4)
    batched: list[list[str]] = []
    predict = model.predict_examples

    def spy(examples: list[Example]) -> Any:
        batched.append([example.text for example in examples])
        return predict(examples)

    monkeypatch.setattr(model, "predict_examples", spy)
    lines = [(f"line {number}", text) for number, text in enumerate(TEXTS[:10])]
    whole = list(predict_lines(model, lines, ".txt"))
    in_one_run = list(batched)
    for number in range(11):
        batched.clear()
        kept = [(f"part line {n}", json.dumps(line)) for n, line in enumerate(whole[:number])]
        assert list(predict_lines(model, lines, ".txt", kept)) == whole[number:]
        assert batched == (in_one_run[number // 4 :] if number < 10 else [])


def test_all_file_formats_give_the_same_predictions(model, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(TEXTS) + "\n")
    rows = "".join(json.dumps({"sentence": text}) + "\n" for text in TEXTS)
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as opened:
        opened.write(rows)
    (tmp_path / "a.tsv").write_text("id\tsentence\n" + "".join(f"1\t{t}\n" for t in TEXTS))
    records = [list(predict_file(model, tmp_path / n)) for n in ("a.txt", "a.jsonl.gz", "a.tsv")]
    assert records[0] == records[1] == records[2]
    assert len(records[0]) == len(TEXTS)


def test_an_empty_line_is_a_line(model) -> None:
    assert [
        p["text"] for p in predict_lines(model, [("1", "a"), ("2", ""), ("3", "b")], ".txt")
    ] == ["a", "", "b"]


def test_blank_json_lines_are_skipped_when_resuming_too(model) -> None:
    lines = ["", json.dumps({"sentence": "a"}), " ", json.dumps({"sentence": "b"}), ""]
    located_lines = [(f"line {number}", line) for number, line in enumerate(lines)]
    records = list(predict_lines(model, located_lines, ".jsonl"))
    assert [line["text"] for line in records] == ["a", "b"]
    kept = [("part line 1", json.dumps(records[0]))]
    assert_same_predictions(predict_lines(model, located_lines, ".jsonl", kept), records[1:])


def test_pairs_are_separated_by_a_tab(pair_model) -> None:
    (record,) = predict_lines(pair_model, [("line 1", "The red bird\tThe tree")], ".txt")
    assert (record["text"], record["pair"]) == ("The red bird", "The tree")
    assert record["prediction"] == pair_model.predict([("The red bird", "The tree")])[0].value


def test_an_empty_line_of_a_table_of_texts_is_a_line(pretrained, tmp_path: Path) -> None:
    model = finetune(pretrained(), table_task("task", Columns()), train=classes(), epochs=0).model
    for name in ("a.tsv", "a.csv"):
        (tmp_path / name).write_text("text\nthe bird\n\nthe tree\n")
        texts = [line["text"] for line in predict_file(model, tmp_path / name)]
        assert texts == ["the bird", "", "the tree"]
        with pytest.raises(UserError, match=rf"{name} line 3, column 'text': the text is empty"):
            table_task("task", Columns(label=None)).read_examples(tmp_path / name)


def test_word_in_context_files_are_pairs(pretrained, tmp_path: Path) -> None:
    train = [Example(e.text, e.pair, "FT"[e.label == "old"]) for e in pairs()]
    model = finetune(pretrained(), find_task("wic"), train=train, epochs=0).model
    file = tmp_path / "test.data.txt"
    file.write_text("bird\tN\t1-1\tThe bird\tThe old bird\n")
    (record,) = predict_file(model, file)
    (tmp_path / "pairs.txt").write_text("bird: The bird\tThe old bird\n")
    (same,) = predict_file(model, tmp_path / "pairs.txt")
    assert record == same
    assert (record["text"], record["pair"]) == ("bird: The bird", "The old bird")
    for line, layout in (("bird", ".txt"), ('{"text": "bird"}', ".jsonl")):
        with pytest.raises(UserError, match=r"line 1"):
            list(predict_lines(model, [("line 1", line)], layout))


@pytest.mark.parametrize("word", ["null", "true", "[]", "NaN"])
def test_words_that_are_no_text_are_refused(tagger, word: str) -> None:
    line = f'{{"words": ["a", {word}, 3]}}'
    with pytest.raises(UserError, match=r"line 1: a word is .*: write its text"):
        list(predict_lines(tagger, [("line 1", line)], ".jsonl"))
    (record,) = predict_lines(tagger, [("line 1", '{"words": ["a", 3]}')], ".jsonl")
    assert record["words"] == ("a", "3")


def test_every_word_gets_a_tag(tagger, tmp_path: Path) -> None:
    (record,) = predict_lines(tagger, [("line 1", "The red  bird")], ".txt")
    assert record["words"] == ("The", "red", "bird")
    assert len(record["prediction"]) == len(record["probabilities"]) == 3
    (same,) = predict_lines(tagger, [("line 1", '{"words": ["The", "red", "bird"]}')], ".jsonl")
    (tmp_path / "words.iob2").write_text("1\tThe\n2\tred\n3\tbird\n\n")
    (from_file,) = predict_file(tagger, tmp_path / "words.iob2")
    assert same == record == from_file


def test_column_layout_is_detected_in_txt_files(tagger, tmp_path: Path) -> None:
    columns = "-DOCSTART- -X- O\n\nThe DT O\nred JJ O\nbird NN B\n\nBirds NNS O\nsing VBP O\n"
    for name in ("words.txt", "words.conll"):
        (tmp_path / name).write_text(columns)
        records = list(predict_file(tagger, tmp_path / name))
        assert [record["words"] for record in records] == [
            ("The", "red", "bird"),
            ("Birds", "sing"),
        ]
    (tmp_path / "words.txt").write_text(columns.replace("VBP ", ""))
    with pytest.raises(UserError, match="line 8 has 2 columns instead of 3 as in line 1"):
        list(predict_file(tagger, tmp_path / "words.txt"))
    (tmp_path / "words.txt").write_text("The red bird\n\nBirds sing\nThe bird\nA red bird\n\n")
    assert len(list(predict_file(tagger, tmp_path / "words.txt"))) == 6


def numbered(text: str) -> list[tuple[str, str]]:
    """Return located lines as from standard input."""
    return [(f"standard input line {n}", line) for n, line in enumerate(text.splitlines(), 1)]


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_layout_detection_is_the_same_for_files_and_standard_input(
    tagger, tmp_path: Path, separator: str
) -> None:
    def columns(*words: str) -> str:
        return "".join(f"{word}{separator}_{separator}O\n" for word in words)

    sentences = "the old bird sings\nthe red bird sleeps\n\nthe old tree is\n"
    rows = f"{columns('the', 'old')}\n{columns('a', 'bird')}"
    for text, expected in (
        (sentences, [tuple(line.split()) for line in sentences.splitlines()]),
        (rows, [("the", "old"), ("a", "bird")]),
    ):
        (tmp_path / "a.txt").write_text(text)
        from_file = list(predict_file(tagger, tmp_path / "a.txt"))
        assert [line["words"] for line in from_file] == expected
        assert list(predict_lines(tagger, numbered(text), ".txt")) == from_file


def test_words_in_context_come_from_standard_input_too(pretrained, tmp_path: Path) -> None:
    train = [Example(e.text, e.pair, "FT"[e.label == "old"]) for e in pairs()]
    model = finetune(pretrained(), find_task("wic"), train=train, epochs=0).model
    text = "bird\tN\t1-1\tThe bird\tThe old bird\n"
    (tmp_path / "own.data.txt").write_text(text)
    from_file = list(predict_file(model, tmp_path / "own.data.txt"))
    assert list(predict_lines(model, numbered(text), ".txt")) == from_file
    (tmp_path / "own.data.txt").write_text("bird: The bird\tThe old bird\n")
    assert list(predict_file(model, tmp_path / "own.data.txt")) == from_file


@pytest.mark.parametrize(
    ("layout", "line", "message"),
    [
        (".txt", "no tab", "line 7: task task needs two texts .* there is no tab"),
        (".txt", "a\tb\tc", "line 7: task task needs two texts .* there is more than one"),
        (".jsonl", "{", "line 7 is not JSON"),
        (".jsonl", "[]", "line 7: expected a JSON object, got list"),
        (".jsonl", '{"one": "a", "tow": "b"}', "line 7: no column 'two': did you mean 'tow'"),
        (".jsonl", '{"one": "a", "two": 1}', "line 7, column 'two': expected a text, got int 1"),
    ],
)
def test_invalid_line_is_reported(pair_model, layout, line, message) -> None:
    with pytest.raises(UserError, match=message):
        list(predict_lines(pair_model, [("line 7", line)], layout))


def test_truncated_tokens_are_reported(pretrained) -> None:
    task = table_task("task", Columns("sentence"))
    short = finetune(pretrained(), task, train=classes(), epochs=0, max_length=8).model
    few, many = predict_lines(short, [("1", "a bird"), ("2", "a bird " * 20)], ".txt")
    assert "truncated_tokens" not in few
    assert many["truncated_tokens"] == 2 * 20 - 6


def test_unexpected_tab_is_refused(model, tagger) -> None:
    for fine_tuned, kind in ((model, "one text"), (tagger, "words separated by spaces")):
        message = f"line 7: task task needs {kind}, and there is 1 tab"
        with pytest.raises(UserError, match=message):
            list(predict_lines(fine_tuned, [("line 7", "The red bird\told")], ".txt"))


def test_unknown_file_format_is_refused(model, tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_text("text")
    with pytest.raises(UserError, match=r"\.docx is not a table format"):
        list(predict_file(model, tmp_path / "a.docx"))
