"""The stories of a world in several languages, and translated sentences.

The first language is the language of :mod:`.stories`. Every other language has its own word for
each word of the first, and puts the verb at the end. Names are the same in all languages, unless
the language has its own script.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from bertwright.core.config import Settings
from bertwright.data.languages import language_code
from bertwright.studies.corpora.corpus import Corpus, CorpusFolder
from bertwright.studies.corpora.stories import (
    EntityName,
    Story,
    Word,
    World,
    format_sentence,
    generate_stories,
    pseudowords,
)
from bertwright.studies.corpora.story_tasks import (
    UNTRANSLATED,
    Translation,
    write_minimal_pairs,
    write_tasks,
)

FIRST_LANGUAGE = "en"
"""Language code. Codes belong to real languages that recipes know; the languages are synthetic."""

PLURAL_ENDING = "k"
"""Plural ending in other languages, instead of s; no other word ends in it."""

SEPARATE_SCRIPT = str.maketrans("abdefgiklmnoprstuvz", "абдефгиклмнопрстувз")


class OtherLanguage(Settings):
    """The numbers of stories and of translated sentences in another language.

    With ``separate_script`` it shares no letters with the first language.
    """

    stories: int = Field(default=5_000, ge=50)
    translations: int = Field(default=0, ge=0)
    separate_script: bool = False


class MultilingualCorpus(Corpus):
    """A corpus of stories in the first language, ``en``, and in ``others``, by language code.

    Every language has the tasks of :class:`.StoryCorpus`, with the same examples: ``topic`` in the
    first language, ``topic-de`` in another.
    """

    kind: Literal["duo"] = "duo"
    stories: int = Field(default=5_000, ge=50)
    others: dict[str, OtherLanguage] = Field(default={"de": OtherLanguage()}, min_length=1)
    seed: int = 0

    @field_validator("others")
    @classmethod
    def _check_codes(cls, others: dict[str, OtherLanguage]) -> dict[str, OtherLanguage]:
        if FIRST_LANGUAGE in others:
            raise ValueError(
                f"{FIRST_LANGUAGE} is the first language: give another one its own code"
            )
        for code in others:
            language_code(code, "others")
        return others

    def write(self, corpus_folder: CorpusFolder) -> None:
        world = World(self.seed)
        corpus_folder.text.mkdir(parents=True)
        stories = generate_stories(world, self.seed, "text", self.stories)
        _write_lines(corpus_folder, f"{FIRST_LANGUAGE}.txt", (f"{story}\n" for story in stories))
        write_minimal_pairs(world, self.seed, corpus_folder.minimal_pairs)
        translations: dict[str, Translation] = {**UNTRANSLATED}
        for code, other in self.others.items():
            language = SyntheticLanguage(world, self.seed, code, other.separate_script)
            stories = generate_stories(world, self.seed, f"text {code}", other.stories)
            lines = (f"{language.translate_story(story)}\n" for story in stories)
            _write_lines(corpus_folder, f"{code}.txt", lines)
            sentences = list(_sentences(world, self.seed, code, other.translations))
            if sentences:
                name = f"{FIRST_LANGUAGE}-{code}"
                lines = map(format_sentence, sentences)
                _write_lines(corpus_folder, f"{name}.{FIRST_LANGUAGE}", lines)
                lines = (format_sentence(language.translate(words)) for words in sentences)
                _write_lines(corpus_folder, f"{name}.{code}", lines)
            translations[f"-{code}"] = language.translate
        write_tasks(world, self.seed, corpus_folder, translations)

    def inputs(self, corpus_folder: CorpusFolder) -> list[str | Path]:
        inputs: list[str | Path] = [
            f"{code}={corpus_folder.text / code}.txt" for code in (FIRST_LANGUAGE, *self.others)
        ]
        for code, other in self.others.items():
            if other.translations:
                files = (
                    f"{corpus_folder.text / FIRST_LANGUAGE}-{code}.{side}"
                    for side in (FIRST_LANGUAGE, code)
                )
                inputs.append(f"{FIRST_LANGUAGE},{code}={','.join(files)}")
        return inputs


class SyntheticLanguage:
    """A language with its own words and the verb at the end."""

    def __init__(self, world: World, seed: int, code: str, separate_script: bool = False) -> None:
        self._world = world
        self._letters = SEPARATE_SCRIPT if separate_script else {}
        words = world.words
        translations = islice(pseudowords(seed, f"language {code}", set(words)), len(words))
        self._words = dict(zip(words, translations, strict=True))

    def translate(self, words: Sequence[Word]) -> list[Word]:
        """Translate a sentence word by word, with the verb at the end."""
        verb = self._world.verb_index(words)
        return [
            self._translate_word(word) for word in (*words[:verb], *words[verb + 1 :], words[verb])
        ]

    def translate_story(self, story: Story) -> Story:
        """Translate a story sentence by sentence."""
        return Story(
            story.topic, [(hour, self.translate(words)) for hour, words in story.sentences]
        )

    def _translate_word(self, word: Word) -> Word:
        if isinstance(word, EntityName):
            parts = tuple(part.translate(self._letters) for part in word.words)
            return EntityName(parts, word.kind)
        if word in self._words:
            return self._words[word].translate(self._letters)
        return (self._words[word.removesuffix("s")] + PLURAL_ENDING).translate(self._letters)


def _sentences(world: World, seed: int, code: str, count: int) -> Iterator[Sequence[Word]]:
    """Yield sentences, each from a different story."""
    for number, story in enumerate(generate_stories(world, seed, f"translations {code}", count)):
        yield story.sentences[number % len(story.sentences)][1]


def _write_lines(corpus_folder: CorpusFolder, name: str, lines: Iterator[str]) -> None:
    with open(corpus_folder.text / name, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
