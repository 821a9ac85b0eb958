"""Synthetic languages and translations."""

from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.studies.corpora import Corpus, CorpusFolder, MultilingualCorpus
from bertwright.studies.corpora.multilingual import OtherLanguage, SyntheticLanguage
from bertwright.studies.corpora.stories import EntityName, World, generate_stories
from bertwright.tasks.catalogue import TASKS, find_split_file

CORPUS = MultilingualCorpus(
    stories=60,
    others={
        "de": OtherLanguage(stories=60, translations=80),
        "ru": OtherLanguage(stories=50, translations=40, separate_script=True),
    },
)


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> CorpusFolder:
    folder = CorpusFolder(tmp_path_factory.mktemp("duo") / "corpus")
    CORPUS.write(folder)
    return folder


def words_by_line(corpus_folder: CorpusFolder, name: str) -> list[list[str]]:
    lines = (corpus_folder.text / name).read_text(encoding="utf-8").splitlines()
    return [line.lower().removesuffix(".").split() for line in lines]


def test_translations_are_literal_with_the_verb_last(corpus_folder: CorpusFolder) -> None:
    verb_index = World(0).verb_index
    for code, count in (("de", 80), ("ru", 40)):
        sources, targets = (
            words_by_line(corpus_folder, f"en-{code}.{suffix}") for suffix in ("en", code)
        )
        assert len(sources) == len(targets) == count
        dictionary: dict[str, str] = {}
        for source, target in zip(sources, targets, strict=True):
            verb = verb_index(source)
            reordered = [*source[:verb], *source[verb + 1 :], source[verb]]
            for word, translation in zip(reordered, target, strict=True):
                assert dictionary.setdefault(word, translation) == translation
        assert len(set(dictionary.values())) == len(dictionary), "no two words share a translation"


def test_languages_share_names_only_unless_scripts_differ() -> None:
    world = World(0)
    names = [*world.people, *world.companies, *world.towns]
    german = SyntheticLanguage(world, 0, "de")
    russian = SyntheticLanguage(world, 0, "ru", separate_script=True)
    story = next(iter(generate_stories(world, 0, "text", 1)))
    for _, words in story.sentences:
        translated = german.translate(words)
        assert [word for word in translated if isinstance(word, EntityName)] == [
            word for word in words if word in names
        ]
        assert not set(map(str, translated)) & {word for word in words if isinstance(word, str)}
        letters = "".join(map(str, russian.translate(words))).replace(" ", "")
        assert not any(letter.isascii() for letter in letters)


def test_numbers_of_documents_and_translations(corpus_folder: CorpusFolder, tmp_path: Path) -> None:
    CORPUS.prepare(
        corpus_folder, WordPieceConfig(vocab_size=400), tmp_path / "vocabulary", tmp_path / "data"
    )
    data = Dataset.open(tmp_path / "data")
    assert data.manifest.languages == ("en", "de", "ru")
    splits = [data.split(name) for name in ("train", "heldout")]
    pairs = sum(len(split.translations) for split in splits)
    assert 80 + 40 - 5 <= pairs <= 80 + 40, "duplicate sentences are read once"
    assert sum(split.num_documents for split in splits) == 60 + 60 + 50 + 2 * pairs


def test_tasks_have_the_same_examples_in_every_language(corpus_folder: CorpusFolder) -> None:
    for name in ("topic", "entailment", "order"):
        tables: list[list[list[str]]] = []
        for suffix in ("", "-de", "-ru"):
            file = find_split_file(corpus_folder.task(name + suffix), "dev")
            tables.append([line.split("\t") for line in file.read_text().splitlines()])
        first, *others = tables
        for other in others:
            assert [row[-1] for row in first] == [row[-1] for row in other]
            assert all(
                len(text.split()) == len(translation.split())
                for row, translated in zip(first, other, strict=True)
                for text, translation in zip(row, translated, strict=True)
            )
    english, german = (
        TASKS["ner"].read_examples(find_split_file(corpus_folder.task(f"names{suffix}"), "dev"))
        for suffix in ("", "-de")
    )
    for first, second in zip(english, german, strict=True):
        assert sorted(first.tags or ()) == sorted(second.tags or ())  # type: ignore[union-attr]


def test_invalid_language_codes_raise() -> None:
    with pytest.raises(ValueError, match="en is the first language"):
        Corpus.parse({"kind": "duo", "others": {"en": {}}})
    with pytest.raises(UserError, match="is not a language code"):
        MultilingualCorpus(others={"German": OtherLanguage()})
