"""A class by the word that fills a gap: the text stands in a template with a mask, and every class
has a word whose place in the vocabulary is where its output begins (Schick and Schütze 2021).

So an encoder that fills masks has an answer before it has seen an example, and learns from few.
Unlike in the paper the outputs go their own way from there, whatever becomes of the embeddings.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from pydantic import Field, field_validator
from torch import nn

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.model.text_model import TextModel
from bertwright.objectives.output import Output
from bertwright.tasks.answers.answer import Reads, told
from bertwright.tasks.answers.texts import ClassAnswer, ClassAnswering
from bertwright.tasks.encoding import RowMaker, TaskRow
from bertwright.tasks.formats.examples import Example, Examples
from bertwright.text.tokenizers import Tokenizer

TEXT, PAIR, MASK = "{text}", "{pair}", "[MASK]"

_PARTS = re.compile(r"(\{text\}|\{pair\}|\[MASK\])")


class ClozeAnswer(ClassAnswer):
    """One of several classes, by the word that fills the ``[MASK]`` of a template.

    ``template`` holds ``{text}``, ``{pair}`` where there is a second one, and ``[MASK]`` once;
    ``words`` are those of the classes, the name of the class itself where none is given.
    """

    kind: Literal["cloze"] = "cloze"  # type: ignore[assignment]
    template: str = "{text} It was [MASK]."
    words: dict[str, str] = Field(default_factory=dict[str, str])
    reads: ClassVar[Reads] = "places"

    @field_validator("template")
    @classmethod
    def _one_mask(cls, template: str) -> str:
        if template.count(MASK) != 1 or TEXT not in template:
            raise ValueError(f"must hold {TEXT}, and {MASK} once: {template!r}")
        return template

    @field_validator("stride")
    @classmethod
    def _no_windows(cls, stride: int | None) -> int | None:
        if stride is not None:
            raise ValueError("a cloze is one row, which has one gap: leave it out")
        return stride

    @property
    def lacks_stride(self) -> bool:
        return False

    def build(self, labels: Sequence[str], temperature: float = 1.0) -> "ClozeAnswering":
        super().build(labels, temperature)  # which refuses weights of labels that are not there
        return ClozeAnswering(self, tuple(labels), temperature)

    def word(self, label: str) -> str:
        """What stands in the gap for a class."""
        return self.words.get(label, label)


@dataclass(frozen=True)
class ClozeAnswering(ClassAnswering):
    """Of :class:`ClozeAnswer`."""

    def rows(self, maker: RowMaker, examples: Examples) -> list[TaskRow]:
        return [self._row(maker, n, cast(Example, e)) for n, e in enumerate(examples)]

    def begin(self, out: nn.Module, source: TextModel) -> None:
        """Every output starts as that of the word of its class over the vocabulary."""
        model = source.model
        source.require_output("an answer of cloze")
        if not source.fills_places:
            raise UserError(
                f"an answer of cloze needs a model that fills places, and {model.recipe.name} "
                f"names what comes next: use prompt"
            )
        if not isinstance(model.output, Output):
            raise UserError(
                f"an answer of cloze needs one output for every piece, and {model.recipe.name} "
                f"names them in steps"
            )
        pieces = self._pieces(source.tokenizer)
        weight, bias = model.output.of_pieces(torch.tensor(pieces), model.embedding)
        last: Any = out
        with torch.no_grad():
            last.weight.copy_(weight)
            last.bias.copy_(bias)

    def _pieces(self, tokenizer: Tokenizer) -> list[int]:
        """Of every class, one of its own."""
        stated = cast(ClozeAnswer, self.choice).words
        if unknown := next((label for label in stated if label not in self.labels), None):
            raise UserError(
                f"answer.words: no example has the label {unknown!r}"
                f"{did_you_mean(unknown, self.labels)}"
            )
        pieces: dict[int, str] = {}
        for label in self.labels:
            piece = self._piece(tokenizer, label)
            if piece in pieces:
                raise UserError(
                    f"answer.words: {tokenizer.piece(piece)!r} stands for {pieces[piece]!r} and "
                    f"for {label!r}: give each a word of its own"
                )
            pieces[piece] = label
        return list(pieces)

    def _piece(self, tokenizer: Tokenizer, label: str) -> int:
        word = cast(ClozeAnswer, self.choice).word(label)
        # With the space before it a word is one piece in vocabularies of bytes.
        found = tokenizer.encode(f" {word}")
        if len(found) != 1 or found[0] == tokenizer.specials.unknown:
            raise UserError(
                f"answer.words: {word!r} is no single piece of the vocabulary: give the label "
                f"{label!r} another word, as in answer.words.{label}=good"
            )
        return found[0]

    def _row(self, maker: RowMaker, number: int, example: Example) -> TaskRow:
        tokenizer, special = maker.tokenizer, maker.tokenizer.specials
        template = cast(ClozeAnswer, self.choice).template
        if PAIR in template and example.second is None:
            raise UserError(f"answer.template holds {PAIR}, and there is no second text")
        if PAIR not in template and example.second is not None:
            raise UserError(
                f"{told(example)} has a second text, which answer.template would leave out: say "
                f"there where {PAIR} stands"
            )
        texts: Mapping[str, str] = {TEXT: example.first, PAIR: example.second or ""}
        parts = [part for part in _PARTS.split(template) if part]
        ids: list[list[int]] = []
        space = ""
        for part in parts:
            said = texts.get(part, part)
            if part == MASK:
                ids.append([special.mask])
                space = ""
                continue
            # The space before a text or a gap belongs to what follows.
            ids.append(tokenizer.encode(space + said.rstrip(" ")) if said.strip() else [])
            space = " " if said.endswith(" ") else ""
        free = [n for n, part in enumerate(parts) if part in texts]
        room = maker.length - 2 - sum(len(own) for n, own in enumerate(ids) if n not in free)
        num_cut = _cut(ids, free, room)
        pieces = [special.start, *(piece for own in ids for piece in own), special.end]
        # Texts may hold a piece as that of the gap.
        place = 1 + sum(map(len, ids[: parts.index(MASK)]))
        segments = [0] * len(pieces) if maker.segmented else None
        return TaskRow(pieces, number, segments, (place,), num_cut=num_cut)


def _cut(ids: list[list[int]], free: Sequence[int], room: int) -> int:
    """Shorten the longest of the texts until they fit, in place; how many pieces that took."""
    before = sum(len(ids[n]) for n in free)
    while sum(len(ids[n]) for n in free) > max(room, 0):
        longest = max(free, key=lambda n: len(ids[n]))
        over = sum(len(ids[n]) for n in free) - max(room, 0)
        others = max((len(ids[n]) for n in free if n != longest), default=0)
        keep = max(len(ids[longest]) - over, min(others, len(ids[longest]) - 1))
        del ids[longest][keep:]
    return before - sum(len(ids[n]) for n in free)
