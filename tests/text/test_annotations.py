"""What is known of stretches of a text survives its cleaning and its cutting into pieces."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bertwright.errors import UserError
from bertwright.text.annotations import WordList, annotations_apart
from bertwright.text.documents import Annotation, ReadCounts, texts_of_row
from bertwright.text.preparation import prepare
from bertwright.text.shards import Data, Stretches
from bertwright.text.tokenizers import ByteBpeChoice, Tokenizer, TokenizerChoice, WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer

TEXT = "Ada Lovelace wrote  the first\r\n\r\n  program of all in London.\nIt ran in spite of all."


def shown(data: Data, stretches: Stretches | None, split: str = "train") -> list[str]:
    assert stretches is not None
    pieces = data.split(split)
    return [
        data.tokenizer.decode(pieces.pieces(int(a), int(b)).tolist()).strip().lower()
        for a, b in zip(stretches.starts, stretches.stops, strict=True)
    ]


def tokenizer(kind: str) -> Tokenizer:
    choices: dict[str, TokenizerChoice] = {
        "wordpiece": WordPieceChoice(size=80),
        "byte-bpe": ByteBpeChoice(size=300),
    }
    return train_tokenizer([TEXT], choices[kind])


def of(text: str, phrase: str, label: str = "phrase") -> dict[str, Any]:
    start = text.index(phrase)
    return {"start": start, "stop": start + len(phrase), "label": label}


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe"])
def test_annotated_characters_become_the_pieces_that_cover_them(tmp_path: Path, kind: str) -> None:
    known = [of(TEXT, "London", "LOC"), of(TEXT, "Ada Lovelace", "PER"), of(TEXT, "in spite of")]
    rows = [{"text": TEXT, "known": known}, {"text": "Another text.", "known": []}]
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = prepare(
        file, tmp_path / "data", tokenizer(kind), annotations="known", heldout=0.0, num_workers=1
    )
    split = data.split("train")
    assert shown(data, split.entities) == ["ada lovelace", "london"]
    assert shown(data, split.phrases) == ["in spite of"]
    assert (data.report["phrases"], data.report["entities"]) == (1, 2)


def test_a_list_of_phrases_finds_the_longest_whatever_its_capitals(tmp_path: Path) -> None:
    (tmp_path / "phrases.txt").write_text("ada\tPER\nADA lovelace\tPER\nof all\n\n")
    (tmp_path / "text.txt").write_text(TEXT)
    data = prepare(
        tmp_path / "text.txt",
        tmp_path / "data",
        tokenizer("wordpiece"),
        phrases=tmp_path / "phrases.txt",
        heldout=0.0,
        num_workers=1,
    )
    split = data.split("train")
    assert shown(data, split.entities) == ["ada lovelace"]
    assert shown(data, split.phrases) == ["of all", "of all"]


def test_words_are_found_whole() -> None:
    found = WordList([("in", "phrase"), ("New York", "LOC")]).find(
        "Spinning in new york, New Yorker"
    )
    assert [(each.start, each.stop, each.label) for each in found] == [
        (9, 11, "phrase"),
        (12, 20, "LOC"),
    ]


@given(some.text(alphabet="ab \n\r\t\0", max_size=30), some.integers(0, 29), some.integers(1, 30))
def test_cleaning_keeps_what_is_annotated(raw: str, start: int, size: int) -> None:
    stop = min(start + size, len(raw))
    texts = list(texts_of_row(raw, ReadCounts()))
    wanted = "".join(c for c in raw[start:stop] if c in "ab")
    found = annotations_apart(raw, texts, [Annotation(start, stop)])
    carried = [text[a.start : a.stop] for text, own in zip(texts, found, strict=True) for a in own]
    if texts and wanted and start < stop:
        assert ["".join(text.split()) for text in carried] == [wanted]
    else:
        assert carried == []


def test_a_text_that_is_cut_in_two_keeps_what_is_known_of_either_half(tmp_path: Path) -> None:
    (tmp_path / "phrases.txt").write_text("in London\nran in\n")
    text = " ".join(TEXT.split())
    known = [of(text, "in London"), of(text, "ran in")]
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text, "known": known}))
    data = prepare(
        tmp_path / "a.jsonl",
        tmp_path / "data",
        tokenizer("wordpiece"),
        annotations="known",
        heldout=0.4,
        num_workers=1,
    )
    assert shown(data, data.split("train").phrases) == ["in london"]
    assert shown(data, data.split("heldout").phrases, "heldout") == ["ran in"]


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ("nothing", "annotations are a list"),
        ([{"start": 3}], "is no stretch of its"),
        ([{"start": 3, "stop": 900}], "is no stretch of its"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, known: Any, message: str) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text(json.dumps({"text": TEXT, "known": known}))
    with pytest.raises(UserError, match=message):
        prepare(file, tmp_path / "data", tokenizer("wordpiece"), annotations="known")


def test_data_sets_without_annotations_say_so(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    split = prepare(
        tmp_path / "text.txt", tmp_path / "data", tokenizer("wordpiece"), heldout=0.0
    ).split("train")
    assert split.phrases is None
    assert split.turns is None
