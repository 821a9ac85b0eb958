"""The village corpus of the checks of compression."""

from pathlib import Path

import pytest

from bertwright.studies.corpora import CorpusFolder
from bertwright.tasks.catalogue import find_split_file
from bertwright.tasks.formats.examples import Examples
from experiments.compressions.toy_models import TASKS
from experiments.compressions.village import MOODS, OPINIONS, VillageCorpus, VillageLanguage

CORPUS = VillageCorpus(documents=100, second_documents=50)


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> CorpusFolder:
    folder = CorpusFolder(tmp_path_factory.mktemp("village"))
    CORPUS.write(folder)
    return folder


def dev_examples(corpus_folder: CorpusFolder, task: str, folder: str | None = None) -> Examples:
    return TASKS[task].read_examples(find_split_file(corpus_folder.task(folder or task), "dev"))


def test_corpus_is_reproducible(corpus_folder: CorpusFolder, tmp_path: Path) -> None:
    again = CorpusFolder(tmp_path)
    CORPUS.write(again)
    files = [file for file in corpus_folder.folder.rglob("*") if file.is_file()]
    assert len(files) == 12
    for file in files:
        copy = again.folder / file.relative_to(corpus_folder.folder)
        assert copy.read_bytes() == file.read_bytes()
    assert "\n" in (corpus_folder.text / "de.txt").read_text()


@pytest.mark.parametrize(("task", "num_opinions"), [("sentiment", 2), ("majority", OPINIONS)])
def test_texts_have_the_mood_of_most_opinions(
    corpus_folder: CorpusFolder, task: str, num_opinions: int
) -> None:
    adjectives, num_unanimous = VillageLanguage(CORPUS.seed).adjectives, 0
    examples = dev_examples(corpus_folder, task)
    for example in examples:
        moods = []
        for sentence in example.text.rstrip(".").split(". "):
            *_, before, adjective = sentence.split()
            moods.append((adjective in adjectives[1]) ^ (before == "not"))
        assert len(moods) == num_opinions
        assert MOODS[2 * sum(moods) > num_opinions] == example.label
        num_unanimous += len({*moods}) == 1
    assert (num_unanimous == len(examples)) == (task == "sentiment")


def test_hypothesis_follows_if_the_thing_is_of_the_kind(corpus_folder: CorpusFolder) -> None:
    language = VillageLanguage(CORPUS.seed)
    things = dict(zip(language.kinds, language.things, strict=True))
    labels = []
    for example in dev_examples(corpus_folder, "inference"):
        premise, hypothesis = (text.rstrip(".").split() for text in (example.text, example.pair))
        assert premise[:2] == hypothesis[:2]
        assert (premise[-1] in things[hypothesis[-1]]) == (example.label == "follows")
        labels.append(example.label)
    assert 0.4 < labels.count("follows") / len(labels) < 0.6


def test_second_language_shares_names_and_ends_with_verbs(corpus_folder: CorpusFolder) -> None:
    people = {*VillageLanguage(CORPUS.seed).people}
    english, german = (dev_examples(corpus_folder, "roles", n) for n in ("roles", "roles-de"))
    shared = {w for e in english for w in e.words} & {w for e in german for w in e.words}
    assert shared <= people
    for first, second in zip(english, german, strict=True):
        assert sorted(first.tags) == sorted(second.tags)
        assert second.tags[-1] == "VERB"
        assert {"AGENT", "PATIENT", "VERB"} <= {*first.tags}
