"""What a question of recall asks for stands in the text, and exactly so far away."""

import json
from pathlib import Path

import pytest

from bertwright.studies.corpora import Corpus, Long, Written
from bertwright.studies.corpora.long import PAIRS, Words


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    written = Written(tmp_path_factory.mktemp("long") / "corpus")
    Long(documents=100, distances=(16, 40, 4096)).write(written)
    return written


def test_the_answer_is_determined_by_the_text_and_stands_so_far_before(written: Written) -> None:
    kinds: dict[str, int] = {}
    for line in written.questions.read_text().splitlines():
        asked = json.loads(line)
        *before, key = asked["prompt"].split()
        distance = int(asked["kind"].removeprefix("distance-"))
        assert before.count(key) == 1
        place = before.index(key)
        assert before[place + 1] == asked["answer"]
        assert len(before) - place == distance
        kinds[asked["kind"]] = kinds.get(asked["kind"], 0) + 1
    assert set(kinds) == {"distance-16", "distance-40", "distance-4096"}
    assert len(set(kinds.values())) == 1


@pytest.mark.parametrize("times", [1, 3])
def test_a_document_asks_for_every_value_so_many_times(times: int, tmp_path: Path) -> None:
    words, written = Words(0), Written(tmp_path / "corpus")
    Long(documents=100, distances=(16, 40), times=times).write(written)
    documents = (written.text / "recalls.txt").read_text().split("\n\n")[:-1]
    assert len(documents) == 100
    for document in documents:
        told = document.split()
        told, again = told[: -2 * PAIRS * times], told[-2 * PAIRS * times :]
        asked = list(zip(again[::2], again[1::2], strict=True))
        pairs = list(zip(told[: 2 * PAIRS : 2], told[1 : 2 * PAIRS : 2], strict=True))
        assert sorted(asked) == sorted(pairs * times)
        assert len(dict(pairs)) == PAIRS
        assert set(told[2 * PAIRS :]) <= set(words.counted)


def test_values_differ_from_document_to_document(written: Written) -> None:
    documents = (written.text / "recalls.txt").read_text().split("\n\n")[:-1]
    values: dict[str, set[str]] = {}
    for document in documents:
        told = document.split()[: 2 * PAIRS]
        for key, value in zip(told[::2], told[1::2], strict=True):
            values.setdefault(key, set()).add(value)
    assert all(len(own) > PAIRS for own in values.values())
    assert set.union(*values.values()) == {v for own in Words(0).values.values() for v in own}


def test_the_same_choice_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        Long(documents=100).write(Written(tmp_path / name))
    for file in ("text/recalls.txt", "questions.jsonl"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()


def test_a_distance_that_has_no_room_is_told() -> None:
    with pytest.raises(ValueError, match="at least 8"):
        Corpus.choose({"kind": "long", "distances": [4]})
