"""Question-answering and multiple-choice files: published formats, and errors with locations."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertwright.core.errors import UserError
from bertwright.tasks.catalogue import find_split_file, find_task
from bertwright.tasks.formats.examples import ExtractiveQuestion, MultipleChoice
from bertwright.tasks.formats.multiple_choice import (
    CodahReader,
    DreamReader,
    RaceReader,
    SwagReader,
)
from bertwright.tasks.formats.squad import SquadReader
from bertwright.tasks.formats.word_in_context import WordInContextReader

TEXT = "The red bird sat in the tree."


def squad(**changes: Any) -> dict[str, Any]:
    item = {
        "id": "q1",
        "question": "Who sat?",
        "answers": [{"text": "red bird", "answer_start": 4}],
        **changes,
    }
    return {"data": [{"title": "Birds", "paragraphs": [{"context": TEXT, "qas": [item]}]}]}


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_questions_of_both_versions(tmp_path: Path) -> None:
    (question,) = SquadReader().read(written(tmp_path / "a.json", squad()))
    assert question == ExtractiveQuestion("Who sat?", TEXT, ("red bird",), (4,), "q1")
    none = squad(is_impossible=True, answers=[])
    (question,) = SquadReader().read(written(tmp_path / "b.json", none))
    assert question.answers == ()
    (question,) = SquadReader().read(tmp_path / "a.json", with_labels=False)
    assert question.answers is None


def test_lone_surrogate_does_not_shift_answers(tmp_path: Path) -> None:
    text = "\ud83d The red bird"
    cut = squad(answers=[{"text": "red bird", "answer_start": 6}])
    cut["data"][0]["paragraphs"][0]["context"] = text
    (question,) = SquadReader().read(written(tmp_path / "a.json", cut))
    assert (question.text, question.starts) == ("\ufffd The red bird", (6,))


def test_unanswerable_questions_are_left_out_of_squad_1(tmp_path: Path) -> None:
    whole = squad()
    items = whole["data"][0]["paragraphs"][0]["qas"]
    items.append({"id": "q2", "question": "Who flew?", "is_impossible": True, "answers": []})
    reader = find_task("squad1").reader
    file = written(tmp_path / "both.json", whole)
    assert [question.id for question in reader.read(file)] == ["q1"]
    assert [question.id for question in reader.read(file, with_labels=False)] == ["q1", "q2"]
    items.pop(0)
    with pytest.raises(UserError, match="has no questions"):
        reader.read(written(tmp_path / "none.json", whole))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"answers": [{"text": "red bird", "answer_start": 5}]},
            r"question q1: the answer 'red bird' is not at character 5 of its text",
        ),
        ({"answers": 3}, r"question q1: 'answers' is not a list: 3"),
        ({"answers": [{"text": "red"}]}, r"question q1: no key 'answer_start'"),
        ({"answers": [{"text": "", "answer_start": 4}]}, r"question q1: an answer is empty"),
        ({"question": None}, r"question q1: 'question' is not a text: None"),
    ],
)
def test_invalid_question_is_reported(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        SquadReader().read(written(tmp_path / "a.json", squad(**changes)))
    assert str(caught.value).startswith(str(tmp_path / "a.json"))


def test_question_ids_are_unique(tmp_path: Path) -> None:
    twice = squad()
    twice["data"] *= 2
    with pytest.raises(UserError, match=r"a\.json, question q1 occurs twice"):
        SquadReader().read(written(tmp_path / "a.json", twice))


def test_invalid_squad_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.json line 1 is not JSON"):
        SquadReader().read(written(tmp_path / "a.json", "{"))
    with pytest.raises(UserError, match=r"a\.json: no key 'data'"):
        SquadReader().read(written(tmp_path / "a.json", {}))
    with pytest.raises(UserError, match="has no questions"):
        SquadReader().read(written(tmp_path / "a.json", {"data": []}))


def test_multiple_choice_formats(tmp_path: Path) -> None:
    codah = written(tmp_path / "a.tsv", "o\tA bird\tflies.\treads.\tpays.\tcooks.\t0\n")
    assert CodahReader().read(codah) == [
        MultipleChoice("A bird", ("flies.", "reads.", "pays.", "cooks."), label=0)
    ]
    row = {"category": "o", "beginning": 0, "0": "a", "1": "b", "2": 1.5, "3": "d", "right": 0}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    with pytest.raises(UserError, match="column 'beginning': expected a text, got int 0"):
        CodahReader().read(tmp_path / "a.jsonl")
    swag = written(
        tmp_path / "a.csv",
        "sent1,sent2,ending0,ending1,ending2,ending3,label\nA bird.,It,flies,reads,pays,cooks,2\n",
    )
    assert SwagReader().read(swag) == [
        MultipleChoice("A bird.", ("flies", "reads", "pays", "cooks"), "It", 2)
    ]
    dialogue = [["M: Hi.", "W: Ho."], [{"question": "Who?", "choice": ["M", "W"], "answer": "W"}]]
    dream = written(tmp_path / "a.json", [[*dialogue, "1"]])
    assert DreamReader().read(dream) == [MultipleChoice("M: Hi. W: Ho.", ("M", "W"), "Who?", 1)]
    passage = {
        "article": "A text.",
        "questions": ["Why?", "Who?"],
        "options": [["a", "b"], ["c", "d"]],
        "answers": ["B", "A"],
    }
    (tmp_path / "train" / "middle").mkdir(parents=True)
    written(tmp_path / "train" / "middle" / "1.txt", passage)
    expected = [
        MultipleChoice("A text.", ("a", "b"), "Why?", 1),
        MultipleChoice("A text.", ("c", "d"), "Who?", 0),
    ]
    assert RaceReader().read(find_split_file(tmp_path, "train")) == expected
    one = {"article": "A text.", "question": "Why?", "options": ["a", "b"], "answer": "B"}
    assert RaceReader().read(written(tmp_path / "a.jsonl", one)) == expected[:1]


@pytest.mark.parametrize(
    ("reader", "name", "content", "message"),
    [
        (
            CodahReader(),
            "a.tsv",
            "o\tA\tb\tc\td\te\t4\n",
            "line 1: the label '4' names none of the",
        ),
        (CodahReader(), "a.tsv", "o\tA\tb\n", "line 1 has 3 columns instead of 7"),
        (
            RaceReader(),
            "a.jsonl",
            '{"article": "a", "question": "b", "options": ["c"], "answer": "B"}',
            "line 1: the answer 'B' names none of 1 options",
        ),
        (
            RaceReader(),
            "a.jsonl",
            '{"article": "a", "questions": ["b", "c"], "options": [["d"], ["e"]], "answers": []}',
            "line 1: 2 questions, 2 lists of options, 0 answers",
        ),
        (
            RaceReader(),
            "a.jsonl",
            '{"article": "a", "questions": ["b"], "options": [5], "answers": ["A"]}',
            "line 1: the options of a question are not a list, or it is empty",
        ),
        (DreamReader(), "a.json", "5", "a.json is not a list of dialogues"),
        (DreamReader(), "a.json", "[[[]]]", "dialogue 1 is not a list of turns and questions"),
        (DreamReader(), "a.json", "[[[], 5]]", "dialogue 1 is not a list of turns and questions"),
        (DreamReader(), "a.json", "[[5, []]]", "dialogue 1 is not a list of turns and questions"),
        (
            DreamReader(),
            "a.json",
            '[[["a"], [{"question": "b", "choice": ["c"], "answer": "d"}]]]',
            "dialogue 1: the answer 'd' is none of its choices",
        ),
    ],
)
def test_invalid_options_are_reported(
    tmp_path: Path, reader: Any, name: str, content: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        reader.read(written(tmp_path / name, content))


def test_word_in_context_labels_are_in_a_second_file(tmp_path: Path) -> None:
    written(tmp_path / "train.data.txt", "bank\tN\t1-2\tThe bank\tA bank\n")
    gold = written(tmp_path / "train.gold.txt", "T\n")
    reader = WordInContextReader()
    (example,) = reader.read(find_split_file(tmp_path, "train", reader.file_keyword))
    assert (example.text, example.pair, example.label) == ("bank: The bank", "A bank", "T")
    written(gold, "T\nF\n")
    with pytest.raises(UserError, match="has 2 labels for 1 line"):
        reader.read(tmp_path / "train.data.txt")
    for file in (gold, tmp_path / "train.data.txt"):
        written(file, "")
    with pytest.raises(UserError, match="has no examples"):
        reader.read(tmp_path / "train.data.txt")


@pytest.mark.parametrize(
    ("task", "folder", "part", "number"),
    [
        ("codah", "codah", "dev", 556),
        ("dream", "dream", "dev", 2040),
        ("sick", "sick", "train", 4500),
        ("sick-relatedness", "sick", "dev", 500),
    ],
)
def test_real_files_are_read(
    shared_data: Path, task: str, folder: str, part: Any, number: int
) -> None:
    named_task = find_task(task)
    assert len(named_task.read_examples(find_split_file(shared_data / folder, part))) == number


def test_squad_answers_are_in_their_texts(shared_data: Path) -> None:
    examples = find_task("squad2").read_examples(shared_data / "squad" / "dev-v2.0.json")
    assert len(examples) > 1_000
    assert any(question.answers == () for question in examples)
