"""Languages made to order: word for word, in another order, and aligned."""

from pathlib import Path

import pytest

from bertwright.errors import UserError
from bertwright.studies.corpora import Corpus, Duo, Written
from bertwright.studies.corpora.duo import Language, Other
from bertwright.studies.corpora.stories import Name, World, stories
from bertwright.tasks.catalogue import TASKS, find_part
from bertwright.text.shards import Data
from bertwright.text.tokenizers import WordPieceChoice

CHOICE = Duo(
    stories=60,
    others={
        "de": Other(stories=60, translations=80),
        "ru": Other(stories=50, translations=40, own_letters=True),
    },
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    written = Written(tmp_path_factory.mktemp("duo") / "corpus")
    CHOICE.write(written)
    return written


def lines(written: Written, name: str) -> list[list[str]]:
    """The words of every line."""
    text = (written.text / name).read_text(encoding="utf-8").splitlines()
    return [line.lower().removesuffix(".").split() for line in text]


def test_line_n_translates_line_n_word_for_word_with_the_verb_last(written: Written) -> None:
    verb = World(0).verb
    for code, count in (("de", 80), ("ru", 40)):
        first, other = lines(written, f"en-{code}.en"), lines(written, f"en-{code}.{code}")
        assert len(first) == len(other) == count
        means: dict[str, str] = {}
        for told, translated in zip(first, other, strict=True):
            place = verb(told)
            for word, its in zip(
                [*told[:place], *told[place + 1 :], told[place]], translated, strict=True
            ):
                assert means.setdefault(word, its) == its
        assert len(set(means.values())) == len(means), "no two words have the same translation"


def test_only_names_are_the_same_in_another_language_unless_it_has_its_own_letters() -> None:
    world = World(0)
    names = [*world.people, *world.companies, *world.towns]
    near, far = Language(world, 0, "de"), Language(world, 0, "ru", own_letters=True)
    story = next(iter(stories(world, 0, "text", 1)))
    for _, words in story.sentences:
        told = near.told(words)
        assert [word for word in told if isinstance(word, Name)] == [
            word for word in words if word in names
        ]
        assert not set(map(str, told)) & {word for word in words if isinstance(word, str)}
        letters = "".join(map(str, far.told(words))).replace(" ", "")
        assert not any(letter.isascii() for letter in letters)


def test_languages_and_translations_are_as_many_as_were_asked_for(
    written: Written, tmp_path: Path
) -> None:
    CHOICE.prepare(written, WordPieceChoice(size=400), tmp_path / "vocabulary", tmp_path / "data")
    data = Data.open(tmp_path / "data")
    assert data.manifest.languages == ("en", "de", "ru")
    parts = [data.split(part) for part in ("train", "heldout")]
    pairs = sum(len(part.translations) for part in parts)
    assert 80 + 40 - 5 <= pairs <= 80 + 40, "a sentence that is there twice is read once"
    assert sum(part.num_documents for part in parts) == 60 + 60 + 50 + 2 * pairs


def test_a_task_has_the_same_examples_in_every_language(written: Written) -> None:
    for name in ("topic", "entailment", "order"):
        by_language: list[list[list[str]]] = []
        for beside in ("", "-de", "-ru"):
            rows = find_part(written.task(name + beside), "dev").read_text().splitlines()
            by_language.append([row.split("\t") for row in rows])
        first, *others = by_language
        for other in others:
            assert [row[-1] for row in first] == [row[-1] for row in other]
            assert all(
                len(a.split()) == len(b.split())
                for one, its in zip(first, other, strict=True)
                for a, b in zip(one, its, strict=True)
            )
    tagged = [TASKS["ner"].read(find_part(written.task(f"names{b}"), "dev")) for b in ("", "-de")]
    for one, its in zip(*tagged, strict=True):
        assert sorted(one.tags or ()) == sorted(its.tags or ())  # type: ignore[union-attr]


def test_the_first_language_is_not_another_one() -> None:
    with pytest.raises(ValueError, match="en is the first language"):
        Corpus.choose({"kind": "duo", "others": {"en": {}}})
    with pytest.raises(UserError, match="no code of a language"):
        Duo(others={"German": Other()})
