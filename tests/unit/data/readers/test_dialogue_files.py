"""Turns and speakers of dialogues."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertwright.core.errors import UserError
from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import Tokenizer, WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer

TEXT = "Who is there? It is me. Come in, then. The door is open. I thank you. Good."


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([TEXT], WordPieceConfig(vocab_size=80))


def prepare_dialogues(
    folder: Path, tokenizer: Tokenizer, name: str, content: str, **settings: Any
) -> Dataset:
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


def turns(data: Dataset) -> list[tuple[int, str]]:
    split = data.split("train")
    assert split.turns is not None
    starts = split.turns.starts.tolist()
    bounds = sorted({*starts, *split.document_starts.tolist()})
    ends = [next(b for b in bounds if b > start) for start in starts]
    return [
        (int(speaker), data.tokenizer.decode(split.token_ids(start, end).tolist()))
        for speaker, start, end in zip(split.turns.speakers, starts, ends, strict=True)
    ]


def test_speakers_are_numbered_in_order(tmp_path: Path, tokenizer: Tokenizer) -> None:
    items = [("B", "who is there?"), ("A", "it is me.\nme."), ("A", "  "), ("B", "come in.")]
    row = {"dialogue": [{"text": text, "speaker": speaker} for speaker, text in items]}
    data = prepare_dialogues(tmp_path, tokenizer, "talk.jsonl", json.dumps(row))
    assert turns(data) == [(0, "who is there ?"), (1, "it is me . me ."), (0, "come in .")]
    assert data.split("train").num_documents == 2
    assert data.report["turns"] == 3


def test_speakers_alternate_by_default(tmp_path: Path, tokenizer: Tokenizer) -> None:
    data = prepare_dialogues(
        tmp_path,
        tokenizer,
        "talk.jsonl",
        json.dumps({"say": ["good", "good", "good ."]}),
        dialogue_column="say",
    )
    assert [speaker for speaker, _ in turns(data)] == [0, 1, 0]


def test_a_null_speaker_is_not_stated(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Every row of a Parquet file has all keys of an object."""
    row = {"dialogue": [{"text": text, "speaker": None} for text in ("good", "good", "good .")]}
    data = prepare_dialogues(tmp_path, tokenizer, "talk.jsonl", json.dumps(row))
    assert [speaker for speaker, _ in turns(data)] == [0, 1, 0]


PREFIXED_TURNS = ["M: who is there?", "Ann: it is me.", "M: come in."]


@pytest.mark.parametrize(
    ("name", "content", "column"),
    [
        ("talk.txt", "\n".join(PREFIXED_TURNS), "dialogue"),
        ("talk.jsonl", json.dumps({"dialogue": PREFIXED_TURNS}), "dialogue"),
        ("talk.json", json.dumps([[PREFIXED_TURNS, [{"question": "who?"}], "1"]]), "0"),
    ],
)
def test_speaker_prefixes(
    name: str, content: str, column: str, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    data = prepare_dialogues(tmp_path, tokenizer, name, content, dialogue_column=column)
    assert turns(data) == [(0, "who is there ?"), (1, "it is me ."), (0, "come in .")]


def test_colon_in_some_turns_is_not_a_speaker_prefix(tmp_path: Path, tokenizer: Tokenizer) -> None:
    data = prepare_dialogues(tmp_path, tokenizer, "talk.txt", "it is: me\nwho\ncome in: then")
    assert [speaker for speaker, _ in turns(data)] == [0, 1, 0]


def test_plain_text_dialogue(tmp_path: Path, tokenizer: Tokenizer) -> None:
    data = prepare_dialogues(
        tmp_path, tokenizer, "talk.txt", "who is there?\nit is me.\n\ncome in\nthen\n"
    )
    assert [speaker for speaker, _ in turns(data)] == [0, 1, 0, 1]
    assert data.split("train").num_documents == 3


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"dialogue": "a text"}, "a dialogue is a list of turns"),
        ({"dialogue": ["a", 3]}, "turn 2 is neither text"),
        ({"talk": ["a", "b"]}, "choose one with --dialogue-column"),
        ({"dialogue": ["good"]}, "no dialogue found"),
        (
            {"dialogue": [{"text": "a", "speaker": f"person {n}"} for n in range(257)]},
            "more than 256 speakers",
        ),
    ],
)
def test_invalid_input_raises(tmp_path: Path, tokenizer: Tokenizer, row: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        prepare_dialogues(tmp_path, tokenizer, "talk.jsonl", json.dumps(row))


def test_dialogue_needs_a_language_if_texts_have_one(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    with pytest.raises(UserError, match=r"states its language and"):
        prepare(
            f"en={tmp_path / 'text.txt'}",
            tmp_path / "data",
            tokenizer,
            dialogues=[tmp_path / "text.txt"],
        )


def test_dailydialog(shared_data: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    file = shared_data / "dailydialog" / "valid.jsonl.gz"
    data = prepare([], tmp_path / "data", tokenizer, dialogues=[file], heldout=0.0)
    assert data.report["turns"] > 8_000
    assert data.split("train").num_documents > 950
