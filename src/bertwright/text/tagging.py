"""Phrases, entities and parts of speech by a tagger: a spaCy pipeline, where one is installed."""

import importlib
from collections.abc import Iterator
from typing import Any

from bertwright.errors import MissingExtra, UserError
from bertwright.text.documents import LONGEST_DOCUMENT, PHRASE, Annotation


class Tagger:
    """What stands in a text, by a spaCy pipeline of this name.

    Errors: MissingExtra without spaCy; UserError for a pipeline that is not there.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        try:
            spacy: Any = importlib.import_module("spacy")
        except ImportError:
            raise MissingExtra("spaCy", "tagger") from None
        try:
            self._pipeline: Any = spacy.load(name)
        except OSError:
            raise UserError(
                f"--tagger {name}: spaCy has no such pipeline: run python -m spacy download {name}"
            ) from None
        self._pipeline.max_length = LONGEST_DOCUMENT + 1

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker loads the pipeline for itself."""
        return Tagger, (self.name,)

    def find(self, text: str) -> Iterator[Annotation]:
        """Its noun phrases and named entities; a pipeline without a parser knows no phrases."""
        read = self._pipeline(text)
        if read.has_annotation("DEP"):
            for phrase in read.noun_chunks:
                yield Annotation(phrase.start_char, phrase.end_char, PHRASE)
        for entity in read.ents:
            # An entity must not be taken for a phrase, whatever the pipeline calls it.
            yield Annotation(entity.start_char, entity.end_char, entity.label_.upper())

    def parts_of_speech(self, text: str) -> Iterator[tuple[int, str]]:
        """Where every token begins, and its part of speech.

        Errors: UserError for a pipeline that tells none.
        """
        read = self._pipeline(text)
        if not read.has_annotation("POS"):
            raise UserError(
                f"the spaCy pipeline {self.name} tells no parts of speech: name one with a tagger"
            )
        for token in read:
            yield token.idx, token.pos_
