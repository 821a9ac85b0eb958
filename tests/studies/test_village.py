"""The language of the village holds what its tasks ask for."""

from pathlib import Path

import pytest

from bertwright.studies.compression_checks.ground import TASKS
from bertwright.studies.corpora import Village, Written
from bertwright.studies.corpora.village import MOODS, Speech
from bertwright.tasks.catalogue import find_part
from bertwright.tasks.formats.examples import Examples

SMALL = Village(documents=100, second=50)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    written = Written(tmp_path_factory.mktemp("village"))
    SMALL.write(written)
    return written


def examples(written: Written, task: str, folder: str | None = None) -> Examples:
    return TASKS[task].read(find_part(written.task(folder or task), "dev"))


def test_the_same_choice_writes_the_same_bytes(written: Written, tmp_path: Path) -> None:
    again = Written(tmp_path)
    SMALL.write(again)
    files = [file for file in written.folder.rglob("*") if file.is_file()]
    assert len(files) == 10
    for file in files:
        assert (again.folder / file.relative_to(written.folder)).read_bytes() == file.read_bytes()
    assert "\n" in (written.text / "de.txt").read_text()


def test_a_text_praises_or_blames(written: Written) -> None:
    moods = Speech(SMALL.seed).adjectives
    for example in examples(written, "sentiment"):
        for said in example.first.rstrip(".").split(". "):
            *_, before, adjective = said.split()
            meant = (adjective in moods[1]) ^ (before == "not")
            assert MOODS[meant] == example.label


def test_what_follows_is_of_the_kind(written: Written) -> None:
    speech = Speech(SMALL.seed)
    kinds = dict(zip(speech.kinds, speech.things, strict=True))
    labels = []
    for example in examples(written, "inference"):
        first, second = (text.rstrip(".").split() for text in (example.first, example.second))
        assert first[:2] == second[:2]
        assert (first[-1] in kinds[second[-1]]) == (example.label == "follows")
        labels.append(example.label)
    assert 0.4 < labels.count("follows") / len(labels) < 0.6


def test_the_second_language_has_words_of_its_own_and_its_verbs_last(written: Written) -> None:
    people = {*Speech(SMALL.seed).people}
    first, second = (examples(written, "roles", name) for name in ("roles", "roles-de"))
    shared = {w for e in first for w in e.words} & {w for e in second for w in e.words}
    assert shared <= people
    for one, other in zip(first, second, strict=True):
        assert sorted(one.tags) == sorted(other.tags)
        assert other.tags[-1] == "VERB"
        assert {"AGENT", "PATIENT", "VERB"} <= {*one.tags}
