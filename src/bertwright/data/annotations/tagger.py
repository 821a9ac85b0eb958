"""Phrases, entities and parts of speech from a spaCy pipeline."""

import importlib
from collections.abc import Iterator
from typing import Any

from bertwright.core.errors import MissingExtra, UserError
from bertwright.data.document import MAX_DOCUMENT_LENGTH, PHRASE, Annotation


class Tagger:
    """A tagger that wraps a spaCy pipeline.

    Errors: MissingExtra without spaCy; UserError for a pipeline that is not installed.
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
        self._pipeline.max_length = MAX_DOCUMENT_LENGTH + 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name only; a worker loads the pipeline again."""
        return Tagger, (self.name,)

    def find(self, text: str) -> Iterator[Annotation]:
        """Yield noun phrases (if the pipeline has a parser) and named entities."""
        parsed = self._pipeline(text)
        if parsed.has_annotation("DEP"):
            for phrase in parsed.noun_chunks:
                yield Annotation(phrase.start_char, phrase.end_char, PHRASE)
        for entity in parsed.ents:
            # Upper case, so that no entity type equals the label ``phrase``.
            yield Annotation(entity.start_char, entity.end_char, entity.label_.upper())

    def parts_of_speech(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the offset and part of speech of every token.

        Errors: UserError for a pipeline without a tagger.
        """
        parsed = self._pipeline(text)
        if not parsed.has_annotation("POS"):
            raise UserError(
                f"the spaCy pipeline {self.name} assigns no parts of speech: choose one with a "
                f"tagger"
            )
        for token in parsed:
            yield token.idx, token.pos_
