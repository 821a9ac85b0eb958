"""The corpus for recall over long distances."""

import json
from pathlib import Path

import pytest

from bertwright.studies.corpora import Corpus, CorpusFolder, LongRangeCorpus
from bertwright.studies.corpora.long_range import PAIRS, RecallVocabulary


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> CorpusFolder:
    folder = CorpusFolder(tmp_path_factory.mktemp("long") / "corpus")
    LongRangeCorpus(documents=100, distances=(16, 40, 4096)).write(folder)
    return folder


def test_value_is_in_the_prompt_at_the_distance(corpus_folder: CorpusFolder) -> None:
    counts: dict[str, int] = {}
    for line in corpus_folder.prompts.read_text().splitlines():
        prompt = json.loads(line)
        *words, key = prompt["prompt"].split()
        distance = int(prompt["kind"].removeprefix("distance-"))
        assert words.count(key) == 1
        index = words.index(key)
        assert words[index + 1] == prompt["continuation"]
        assert len(words) - index == distance
        counts[prompt["kind"]] = counts.get(prompt["kind"], 0) + 1
    assert set(counts) == {"distance-16", "distance-40", "distance-4096"}
    assert len(set(counts.values())) == 1


@pytest.mark.parametrize("repetitions", [1, 3])
def test_documents_repeat_all_pairs(repetitions: int, tmp_path: Path) -> None:
    folder = CorpusFolder(tmp_path / "corpus")
    LongRangeCorpus(documents=100, distances=(16, 40), repetitions=repetitions).write(folder)
    documents = (folder.text / "recalls.txt").read_text().split("\n\n")[:-1]
    assert len(documents) == 100
    for document in documents:
        words = document.split()
        words, recalled = words[: -2 * PAIRS * repetitions], words[-2 * PAIRS * repetitions :]
        repeated = list(zip(recalled[::2], recalled[1::2], strict=True))
        pairs = list(zip(words[: 2 * PAIRS : 2], words[1 : 2 * PAIRS : 2], strict=True))
        assert sorted(repeated) == sorted(pairs * repetitions)
        assert len(dict(pairs)) == PAIRS
        assert set(words[2 * PAIRS :]) <= set(RecallVocabulary(0).fillers)


def test_values_differ_between_documents(corpus_folder: CorpusFolder) -> None:
    documents = (corpus_folder.text / "recalls.txt").read_text().split("\n\n")[:-1]
    values_by_key: dict[str, set[str]] = {}
    for document in documents:
        words = document.split()[: 2 * PAIRS]
        for key, value in zip(words[::2], words[1::2], strict=True):
            values_by_key.setdefault(key, set()).add(value)
    assert all(len(values) > PAIRS for values in values_by_key.values())
    assert set.union(*values_by_key.values()) == {
        value for values in RecallVocabulary(0).values.values() for value in values
    }


def test_corpus_is_reproducible(tmp_path: Path) -> None:
    for name in ("first", "second"):
        LongRangeCorpus(documents=100).write(CorpusFolder(tmp_path / name))
    for file in ("text/recalls.txt", "prompts.jsonl"):
        first, second = (tmp_path / name / file for name in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()


def test_too_short_distances_raise() -> None:
    with pytest.raises(ValueError, match="at least 8"):
        Corpus.parse({"kind": "long", "distances": [4]})
