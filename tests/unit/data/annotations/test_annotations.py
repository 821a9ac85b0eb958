"""Annotations survive cleaning and tokenization."""

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

from bertwright.core.errors import UserError
from bertwright.data.annotations.alignment import (
    PhraseList,
    attach_annotations,
    to_visible_offsets,
)
from bertwright.data.annotations.tagger import Tagger
from bertwright.data.document import Annotation, ReadCounts, split_long_text
from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset, TokenSpans
from bertwright.data.tokenization.tokenizer import (
    ByteBpeConfig,
    Tokenizer,
    TokenizerConfig,
    WordPieceConfig,
)
from bertwright.data.vocabulary_training import train_tokenizer

TEXT = "Ada Lovelace wrote  the first\r\n\r\n  program of all in London.\nIt ran in spite of all."


def decode_spans(data: Dataset, spans: TokenSpans | None, split: str = "train") -> list[str]:
    assert spans is not None
    tokens = data.split(split)
    return [
        data.tokenizer.decode(tokens.token_ids(int(a), int(b)).tolist()).strip().lower()
        for a, b in zip(spans.starts, spans.stops, strict=True)
    ]


def tokenizer(kind: str) -> Tokenizer:
    configs: dict[str, TokenizerConfig] = {
        "wordpiece": WordPieceConfig(vocab_size=80),
        "byte-bpe": ByteBpeConfig(vocab_size=300),
    }
    return train_tokenizer([TEXT], configs[kind])


def annotation(text: str, phrase: str, label: str = "phrase") -> dict[str, Any]:
    start = text.index(phrase)
    return {"start": start, "stop": start + len(phrase), "label": label}


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe"])
def test_annotations_become_token_spans(tmp_path: Path, kind: str) -> None:
    annotations = [
        annotation(TEXT, "London", "LOC"),
        annotation(TEXT, "Ada Lovelace", "PER"),
        annotation(TEXT, "in spite of"),
    ]
    rows = [
        {"text": TEXT, "annotations": annotations},
        {"text": "Another text.", "annotations": []},
    ]
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = prepare(
        file,
        tmp_path / "data",
        tokenizer(kind),
        annotations_column="annotations",
        heldout=0.0,
        num_workers=1,
    )
    split = data.split("train")
    assert decode_spans(data, split.entities) == ["ada lovelace", "london"]
    assert decode_spans(data, split.phrases) == ["in spite of"]
    assert (data.report["phrases"], data.report["entities"]) == (1, 2)


def test_phrase_list_finds_the_longest_match_ignoring_case(tmp_path: Path) -> None:
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
    assert decode_spans(data, split.entities) == ["ada lovelace"]
    assert decode_spans(data, split.phrases) == ["of all", "of all"]


def test_byte_order_mark_of_a_phrase_list_is_removed(tmp_path: Path) -> None:
    (tmp_path / "phrases.txt").write_text("New York\tLOC\n", encoding="utf-8-sig")
    matches = PhraseList.read(tmp_path / "phrases.txt").find("In New York.")
    assert [match.label for match in matches] == ["LOC"]


def test_only_a_line_feed_ends_a_phrase(tmp_path: Path) -> None:
    (tmp_path / "phrases.txt").write_text("New\u2028York\n", encoding="utf-8")
    [match] = PhraseList.read(tmp_path / "phrases.txt").find("In New York.")
    assert (match.start, match.stop) == (3, 11)


def test_phrases_that_are_not_utf_8_are_named_by_line(tmp_path: Path) -> None:
    (tmp_path / "phrases.txt").write_bytes(b"New York\ncaf\xe9\n")
    with pytest.raises(UserError, match=r"phrases.txt line 2: byte 4 is not UTF-8"):
        PhraseList.read(tmp_path / "phrases.txt")


def test_phrase_list_matches_whole_words() -> None:
    matches = PhraseList([("in", "phrase"), ("New York", "LOC")]).find(
        "Spinning in new york, New Yorker"
    )
    assert [(match.start, match.stop, match.label) for match in matches] == [
        (9, 11, "phrase"),
        (12, 20, "LOC"),
    ]


@given(
    some.text(alphabet="ab \n\r\t\0", max_size=30),
    some.integers(0, 29),
    some.integers(1, 30),
    some.integers(0, 30),
)
def test_cleaning_keeps_annotations(raw_text: str, start: int, size: int, cut: int) -> None:
    stop = min(start + size, len(raw_text))
    texts = split_long_text(raw_text, ReadCounts())
    expected = "".join(c for c in raw_text[start:stop] if c in "ab")
    blocks = [raw_text[:cut], raw_text[cut:]]
    annotations = [Annotation(start, stop)] if start < stop else []
    matches = list(attach_annotations(texts, to_visible_offsets(annotations, blocks, "text")))
    assert [text for text, _ in matches] == texts
    texts_of_spans = [text[a.start : a.stop] for text, annotations in matches for a in annotations]
    if texts and expected and start < stop:
        assert ["".join(text.split()) for text in texts_of_spans] == [expected]
    else:
        assert texts_of_spans == []


def test_split_text_keeps_its_annotations(tmp_path: Path) -> None:
    text = " ".join(TEXT.split())
    annotations = [annotation(text, "in London"), annotation(text, "ran in")]
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text, "annotations": annotations}))
    data = prepare(
        tmp_path / "a.jsonl",
        tmp_path / "data",
        tokenizer("wordpiece"),
        annotations_column="annotations",
        heldout=0.4,
        num_workers=1,
    )
    assert decode_spans(data, data.split("train").phrases) == ["in london"]
    assert decode_spans(data, data.split("heldout").phrases, "heldout") == ["ran in"]


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ("nothing", "annotations are a list"),
        ([{"start": 3}], "{'start': 3} is not a span: write"),
        ([{"start": 3, "stop": 900}], r"3 to 900 is not a span of \d+ characters"),
    ],
)
def test_invalid_input_raises(tmp_path: Path, annotations: Any, message: str) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text(json.dumps({"text": TEXT, "annotations": annotations}))
    with pytest.raises(UserError, match=message):
        prepare(file, tmp_path / "data", tokenizer("wordpiece"), annotations_column="annotations")


def test_data_without_annotations(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    split = prepare(
        tmp_path / "text.txt", tmp_path / "data", tokenizer("wordpiece"), heldout=0.0
    ).split("train")
    assert split.phrases is None
    assert split.turns is None


def write_sidecar(tmp_path: Path, text: str, annotations: Any, name: str = "story.txt") -> Path:
    """Write a text and its annotation file."""
    (tmp_path / name).write_text(text, newline="")
    (tmp_path / f"{name}.json").write_text(json.dumps(annotations))
    return tmp_path / name


STORY = (
    "  Ada Lovelace wrote \r\n the first program.\r\n\r\n\r\nIt ran in   London, in spite of all."
)


def test_sidecar_annotations(tmp_path: Path) -> None:
    read = STORY.replace("\r\n", "\n")
    annotations = [
        annotation(read, "London", "LOC"),
        annotation(read, "Ada Lovelace wrote \n the"),
        annotation(read, "program"),
    ]
    annotations.append({"start": read.index("program"), "stop": read.index("It") + 2})
    file = write_sidecar(tmp_path, STORY, annotations)
    (tmp_path / "other.txt").write_text("Another text.")
    (tmp_path / "other.txt.json").write_text("[]")
    data = prepare(
        [tmp_path / "other.txt", file],
        tmp_path / "data",
        tokenizer("wordpiece"),
        annotations_column="annotations",
        heldout=0.0,
        num_workers=1,
    )
    split = data.split("train")
    assert decode_spans(data, split.phrases) == ["ada lovelace wrote the", "program"]
    assert decode_spans(data, split.entities) == ["london"]


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"start": 0}, "annotations are a list"),
        (
            [{"start": 5, "stop": 5000}],
            r"story.txt.json: 5 to 5000 is not a span of \d+ characters",
        ),
        ([{"start": 5, "stop": 5}], r"'stop': 5} is not a span: write"),
        (None, "write them to .*story.txt.json"),
    ],
)
def test_invalid_sidecar_raises(tmp_path: Path, annotations: Any, message: str) -> None:
    file = write_sidecar(tmp_path, STORY, annotations)
    if annotations is None:
        (tmp_path / "story.txt.json").unlink()
    with pytest.raises(UserError, match=message):
        prepare(file, tmp_path / "data", tokenizer("wordpiece"), annotations_column="annotations")


class Pipeline:
    """A fake spaCy pipeline: "Ada" and a word are an entity, "the" and a word a phrase."""

    def __init__(self, parsed: bool) -> None:
        self.complete_sentences = parsed

    def __call__(self, text: str) -> Any:
        def span(matches: re.Match[str], label: str = "") -> Any:
            return SimpleNamespace(start_char=matches.start(), end_char=matches.end(), label_=label)

        return SimpleNamespace(
            has_annotation=lambda name: self.complete_sentences and name == "DEP",
            noun_chunks=[span(matches) for matches in re.finditer(r"the \w+", text)],
            ents=[span(matches, "phrase") for matches in re.finditer(r"Ada \w+", text)],
        )


def fake_spacy(parsed: bool) -> Any:
    def load(name: str) -> Pipeline:
        if name != "en_small":
            raise OSError(name)
        return Pipeline(parsed)

    return SimpleNamespace(load=load)


@pytest.mark.parametrize("parsed", [True, False])
def test_tagger(tmp_path: Path, parsed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", fake_spacy(parsed))
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
    assert decode_spans(data, split.entities) == ["ada lovelace"]
    assert decode_spans(data, split.phrases) == (["the first"] if parsed else [])
    assert pickle.loads(pickle.dumps(Tagger("en_small"))).name == "en_small"


def test_missing_tagger_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(UserError, match=r"spaCy is not installed: run pip install 'bertwright\[ta"):
        Tagger("en_small")
    monkeypatch.setitem(sys.modules, "spacy", fake_spacy(True))
    with pytest.raises(UserError, match="spaCy has no such pipeline: run python -m spacy download"):
        Tagger("en_smal")
