"""The stories of a world in several languages, and sentences with their translations.

The first language is that of :mod:`.stories`. Every other one has a word of its own for each of
its words, and puts the verb last. Names are the same in all, but for the letters where a language
has its own.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from bertwright.axes import Settings
from bertwright.studies.corpora.corpus import Corpus, Written
from bertwright.studies.corpora.lexicon import new_words
from bertwright.studies.corpora.stories import Name, Story, Word, World, sentence, stories
from bertwright.studies.corpora.story_tasks import WORLD, Telling, write_pairs, write_tasks
from bertwright.text.languages import language_code

FIRST = "en"
"""Codes are those of languages that recipes know; what they name here is made up."""

ENDING = "k"
"""What other languages have for the s of number: no word of theirs ends in it."""

OWN_LETTERS = str.maketrans("abdefgiklmnoprstuvz", "абдефгиклмнопрстувз")


class Other(Settings):
    """How much there is of another language: so many stories, and so many sentences beside their
    translations into the first. With ``own_letters`` no letter is shared."""

    stories: int = Field(default=5_000, ge=50)
    translations: int = Field(default=0, ge=0)
    own_letters: bool = False


class Duo(Corpus):
    """So many stories in the first language, ``en``, and ``others`` by their code.

    Every language has the tasks of :class:`.Grammar`, with the same examples: ``topic`` in the
    first, ``topic-de`` in another.
    """

    kind: Literal["duo"] = "duo"
    stories: int = Field(default=5_000, ge=50)
    others: dict[str, Other] = Field(default={"de": Other()}, min_length=1)
    seed: int = 0

    @field_validator("others")
    @classmethod
    def _codes(cls, others: dict[str, Other]) -> dict[str, Other]:
        if FIRST in others:
            raise ValueError(f"{FIRST} is the first language: give another one another code")
        for code in others:
            language_code(code, "others")
        return others

    def write(self, to: Written) -> None:
        world = World(self.seed)
        to.text.mkdir(parents=True)
        told = stories(world, self.seed, "text", self.stories)
        _write(to, f"{FIRST}.txt", (f"{story}\n" for story in told))
        write_pairs(world, self.seed, to.pairs)
        tellings: dict[str, Telling] = {**WORLD}
        for code, other in self.others.items():
            language = Language(world, self.seed, code, other.own_letters)
            told = stories(world, self.seed, f"text {code}", other.stories)
            _write(to, f"{code}.txt", (f"{language.story(story)}\n" for story in told))
            pairs = list(_sentences(world, self.seed, code, other.translations))
            if pairs:
                _write(to, f"{FIRST}-{code}.{FIRST}", (sentence(words) for words in pairs))
                sides = (sentence(language.told(words)) for words in pairs)
                _write(to, f"{FIRST}-{code}.{code}", sides)
            tellings[f"-{code}"] = language.told
        write_tasks(world, self.seed, to, tellings)

    def inputs(self, written: Written) -> list[str | Path]:
        stated = [f"{code}={written.text / code}.txt" for code in (FIRST, *self.others)]
        for code, other in self.others.items():
            if other.translations:
                sides = (f"{written.text / FIRST}-{code}.{side}" for side in (FIRST, code))
                stated.append(f"{FIRST},{code}={','.join(sides)}")
        return [*stated]


class Language:
    """What tells the sentences of a world in other words, the verb last."""

    def __init__(self, world: World, seed: int, code: str, own_letters: bool = False) -> None:
        self._world = world
        self._letters = OWN_LETTERS if own_letters else {}
        words = world.words
        own = islice(new_words(seed, f"language {code}", set(words)), len(words))
        self._words = dict(zip(words, own, strict=True))

    def told(self, words: Sequence[Word]) -> list[Word]:
        """The translation of a sentence, word by word."""
        verb = self._world.verb(words)
        return [self._word(word) for word in (*words[:verb], *words[verb + 1 :], words[verb])]

    def story(self, story: Story) -> Story:
        """A story, sentence by sentence."""
        return Story(story.topic, [(hour, self.told(words)) for hour, words in story.sentences])

    def _word(self, word: Word) -> Word:
        if isinstance(word, Name):
            parts = tuple(part.translate(self._letters) for part in word.words)
            return Name(parts, word.kind)
        if word in self._words:
            return self._words[word].translate(self._letters)
        return (self._words[word.removesuffix("s")] + ENDING).translate(self._letters)


def _sentences(world: World, seed: int, code: str, count: int) -> Iterator[Sequence[Word]]:
    """So many sentences, each from a story of its own."""
    for number, story in enumerate(stories(world, seed, f"translations {code}", count)):
        yield story.sentences[number % len(story.sentences)][1]


def _write(to: Written, name: str, lines: Iterator[str]) -> None:
    with open(to.text / name, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
