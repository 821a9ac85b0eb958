"""Dialogues keep their turns and who speaks."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertwright.errors import UserError
from bertwright.text.preparation import prepare
from bertwright.text.shards import Data
from bertwright.text.tokenizers import Tokenizer, WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer

TEXT = "Who is there? It is me. Come in, then. The door is open. I thank you. Good."


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([TEXT], WordPieceChoice(size=80))


def made(folder: Path, tokenizer: Tokenizer, name: str, content: str, **settings: Any) -> Data:
    (folder / "text.txt").write_text(TEXT)
    (folder / name).write_text(content)
    return prepare(
        folder / "text.txt",
        folder / "data",
        tokenizer,
        heldout=0.0,
        dialogues=[folder / name],
        num_workers=1,
        **settings,
    )


def turns(data: Data) -> list[tuple[int, str]]:
    split = data.split("train")
    assert split.turns is not None
    starts = split.turns.starts.tolist()
    bounds = sorted({*starts, *split.document_starts.tolist()})
    ends = [next(b for b in bounds if b > start) for start in starts]
    return [
        (int(who), data.tokenizer.decode(split.pieces(start, end).tolist()))
        for who, start, end in zip(split.turns.speakers, starts, ends, strict=True)
    ]


def test_speakers_are_numbered_as_they_come(tmp_path: Path, tokenizer: Tokenizer) -> None:
    said = [("B", "who is there?"), ("A", "it is me.\nme."), ("A", "  "), ("B", "come in.")]
    row = {"dialogue": [{"text": text, "speaker": who} for who, text in said]}
    data = made(tmp_path, tokenizer, "talk.jsonl", json.dumps(row))
    assert turns(data) == [(0, "who is there ?"), (1, "it is me . me ."), (0, "come in .")]
    assert data.split("train").num_documents == 2
    assert data.report["turns"] == 3


def test_without_speakers_two_take_turns(tmp_path: Path, tokenizer: Tokenizer) -> None:
    data = made(
        tmp_path,
        tokenizer,
        "talk.jsonl",
        json.dumps({"say": ["good", "good", "good ."]}),
        dialogue_column="say",
    )
    assert [who for who, _ in turns(data)] == [0, 1, 0]


SPOKEN = ["M: who is there?", "Ann: it is me.", "M: come in."]


@pytest.mark.parametrize(
    ("name", "content", "column"),
    [
        ("talk.txt", "\n".join(SPOKEN), "dialogue"),
        ("talk.jsonl", json.dumps({"dialogue": SPOKEN}), "dialogue"),
        ("talk.json", json.dumps([[SPOKEN, [{"question": "who?"}], "1"]]), "0"),
    ],
)
def test_turns_may_begin_with_who_says_them(
    name: str, content: str, column: str, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    data = made(tmp_path, tokenizer, name, content, dialogue_column=column)
    assert turns(data) == [(0, "who is there ?"), (1, "it is me ."), (0, "come in .")]


def test_a_colon_in_some_turns_names_nobody(tmp_path: Path, tokenizer: Tokenizer) -> None:
    data = made(tmp_path, tokenizer, "talk.txt", "it is: me\nwho\ncome in: then")
    assert [who for who, _ in turns(data)] == [0, 1, 0]


def test_plain_text_has_a_turn_on_each_line(tmp_path: Path, tokenizer: Tokenizer) -> None:
    data = made(tmp_path, tokenizer, "talk.txt", "who is there?\nit is me.\n\ncome in\nthen\n")
    assert [who for who, _ in turns(data)] == [0, 1, 0, 1]
    assert data.split("train").num_documents == 3


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"dialogue": "a text"}, "a dialogue is a list of turns"),
        ({"dialogue": ["a", 3]}, "turn 2 is no text"),
        ({"talk": ["a", "b"]}, "choose one with --dialogue-column"),
        ({"dialogue": ["good"]}, "no dialogue with two turns"),
        (
            {"dialogue": [{"text": "a", "speaker": f"person {n}"} for n in range(257)]},
            "more than 256 people speak",
        ),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, tokenizer: Tokenizer, row: Any, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        made(tmp_path, tokenizer, "talk.jsonl", json.dumps(row))


def test_a_dialogue_is_in_one_language(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    with pytest.raises(UserError, match=r"the language of .* is stated and that of"):
        prepare(
            f"en={tmp_path / 'text.txt'}",
            tmp_path / "data",
            tokenizer,
            dialogues=[tmp_path / "text.txt"],
        )


def test_the_dialogues_of_dailydialog_can_be_read(
    shared_data: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    file = shared_data / "dailydialog" / "valid.jsonl.gz"
    data = prepare([], tmp_path / "data", tokenizer, dialogues=[file], heldout=0.0)
    assert data.report["turns"] > 8_000
    assert data.split("train").num_documents > 950
