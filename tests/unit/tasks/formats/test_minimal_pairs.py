"""Minimal pairs in the layout of BLiMP."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.tasks.zero_shot.minimal_pairs import (
    MinimalPair,
    first_of_each_paradigm,
    read_minimal_pairs,
)

ROW = {"sentence_good": "Cats sleep.", "sentence_bad": "Cats sleeps."}


def test_paradigm_defaults_to_the_file_name(tmp_path: Path) -> None:
    rows = [ROW | {"UID": "agreement"}, ROW]
    (tmp_path / "mine.jsonl.gz").write_bytes(
        gzip.compress("\n".join(map(json.dumps, rows)).encode())
    )
    expected = [MinimalPair("Cats sleep.", "Cats sleeps.", name) for name in ("agreement", "mine")]
    assert read_minimal_pairs(tmp_path / "mine.jsonl.gz") == expected
    (tmp_path / "another.jsonl").write_text(json.dumps(ROW))
    (tmp_path / "unfinished.jsonl.part").write_text("{")
    assert [p.paradigm for p in read_minimal_pairs(tmp_path)] == ["another", "agreement", "mine"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"sentence_goood": "a"}', "no key 'sentence_good': did you mean 'sentence_goood'?"),
        (json.dumps(ROW | {"sentence_bad": 3}), "'sentence_bad' is not a text: 3"),
        ("[]", "expected a JSON object, got list"),
        ("{", "is not JSON"),
        ("", "has no minimal pairs"),
    ],
)
def test_invalid_input_is_reported_in_one_sentence(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(UserError) as caught:
        read_minimal_pairs(tmp_path / "x.jsonl")
    assert sentence in str(caught.value)


def test_blimp_has_67_paradigms(shared_data: Path) -> None:
    pairs = read_minimal_pairs(shared_data / "blimp" / "blimp.jsonl.gz")
    assert Counter(Counter(pair.paradigm for pair in pairs).values()) == {334: 67}


def test_the_first_of_each_paradigm() -> None:
    pairs = [MinimalPair(str(number), "", "ab"[number % 3 == 0]) for number in range(10)]
    assert [pair.good for pair in first_of_each_paradigm(pairs, 2)] == ["0", "1", "2", "3"]
    assert first_of_each_paradigm(pairs, 100) == pairs
