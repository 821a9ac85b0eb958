"""What is known of stretches of a text survives its cleaning and its cutting into pieces."""

import json
import pickle
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bertwright.errors import UserError
from bertwright.text.annotations import WordList, annotated_row
from bertwright.text.documents import Annotation, ReadCounts, texts_of_row
from bertwright.text.preparation import prepare
from bertwright.text.shards import Data, Stretches
from bertwright.text.tagging import Tagger
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


def test_a_byte_order_mark_is_no_part_of_a_phrase(tmp_path: Path) -> None:
    (tmp_path / "phrases.txt").write_text("New York\tLOC\n", encoding="utf-8-sig")
    found = WordList.read(tmp_path / "phrases.txt").find("In New York.")
    assert [each.label for each in found] == ["LOC"]


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
    texts = texts_of_row(raw, ReadCounts())
    wanted = "".join(c for c in raw[start:stop] if c in "ab")
    found = list(annotated_row(raw, texts, [Annotation(start, stop)]))
    assert [text for text, _ in found] == texts
    carried = [text[a.start : a.stop] for text, own in found for a in own]
    if texts and wanted and start < stop:
        assert ["".join(text.split()) for text in carried] == [wanted]
    else:
        assert carried == []


def test_a_text_that_is_cut_in_two_keeps_what_is_known_of_either_half(tmp_path: Path) -> None:
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
        ([{"start": 3}], "{'start': 3} is no stretch: write"),
        ([{"start": 3, "stop": 900}], r"3 to 900 is no stretch of \d+ characters"),
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


def beside(tmp_path: Path, text: str, known: Any, name: str = "story.txt") -> Path:
    """A text, and what is known of it in a file beside it."""
    (tmp_path / name).write_text(text, newline="")
    (tmp_path / f"{name}.json").write_text(json.dumps(known))
    return tmp_path / name


STORY = (
    "  Ada Lovelace wrote \r\n the first program.\r\n\r\n\r\nIt ran in   London, in spite of all."
)


def test_what_stands_beside_a_plain_text_is_carried_to_its_documents(tmp_path: Path) -> None:
    read = STORY.replace("\r\n", "\n")
    known = [of(read, "London", "LOC"), of(read, "Ada Lovelace wrote \n the"), of(read, "program")]
    known.append({"start": read.index("program"), "stop": read.index("It") + 2})
    file = beside(tmp_path, STORY, known)
    (tmp_path / "other.txt").write_text("Another text.")
    (tmp_path / "other.txt.json").write_text("[]")
    data = prepare(
        [tmp_path / "other.txt", file],
        tmp_path / "data",
        tokenizer("wordpiece"),
        annotations="known",
        heldout=0.0,
        num_workers=1,
    )
    split = data.split("train")
    assert shown(data, split.phrases) == ["ada lovelace wrote the", "program"]
    assert shown(data, split.entities) == ["london"]


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"start": 0}, "annotations are a list"),
        (
            [{"start": 5, "stop": 5000}],
            r"story.txt.json: 5 to 5000 is no stretch of \d+ characters",
        ),
        ([{"start": 5, "stop": 5}], r"'stop': 5} is no stretch: write"),
        (None, "there is no .*story.txt.json that says"),
    ],
)
def test_what_is_wrong_beside_a_text_is_said(tmp_path: Path, known: Any, message: str) -> None:
    file = beside(tmp_path, STORY, known)
    if known is None:
        (tmp_path / "story.txt.json").unlink()
    with pytest.raises(UserError, match=message):
        prepare(file, tmp_path / "data", tokenizer("wordpiece"), annotations="known")


class Pipeline:
    """Stands for spaCy: capitals are people, ``the`` and the word behind it a phrase."""

    def __init__(self, parsed: bool) -> None:
        self.parsed = parsed

    def __call__(self, text: str) -> Any:
        def span(found: re.Match[str], label: str = "") -> Any:
            return SimpleNamespace(start_char=found.start(), end_char=found.end(), label_=label)

        return SimpleNamespace(
            has_annotation=lambda name: self.parsed and name == "DEP",
            noun_chunks=[span(found) for found in re.finditer(r"the \w+", text)],
            ents=[span(found, "phrase") for found in re.finditer(r"Ada \w+", text)],
        )


def spacy_of(parsed: bool) -> Any:
    def load(name: str) -> Pipeline:
        if name != "en_small":
            raise OSError(name)
        return Pipeline(parsed)

    return SimpleNamespace(load=load)


@pytest.mark.parametrize("parsed", [True, False])
def test_a_tagger_finds_phrases_and_entities(
    tmp_path: Path, parsed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "spacy", spacy_of(parsed))
    (tmp_path / "text.txt").write_text(TEXT)
    data = prepare(
        tmp_path / "text.txt",
        tmp_path / "data",
        tokenizer("wordpiece"),
        tagger="en_small",
        heldout=0.0,
        num_workers=1,
    )
    split = data.split("train")
    assert shown(data, split.entities) == ["ada lovelace"]
    assert shown(data, split.phrases) == (["the first"] if parsed else [])
    assert pickle.loads(pickle.dumps(Tagger("en_small"))).name == "en_small"


def test_a_tagger_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(UserError, match=r"spaCy is not installed: run pip install 'bertwright\[ta"):
        Tagger("en_small")
    monkeypatch.setitem(sys.modules, "spacy", spacy_of(True))
    with pytest.raises(UserError, match="spaCy has no such pipeline: run python -m spacy download"):
        Tagger("en_smal")
