"""Problems with one right solution, as text: copies, reverses, sums and brackets.

A document has some problems of one kind, each a task, an equals sign and its solution. The name of
the kind stands before each, or nowhere: then only the problems before tell what is to be done.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.randomness import generator, key
from bertwright.studies.corpora.corpus import Corpus, Written, write_lines

LETTERS = "abcdefghijkl"
CLOSING = {"(": ")", "[": "]", "{": "}"}
QUESTIONS = 100
"""Of a kind of problem, alike in what stands before them and in their lengths."""

Kind = Literal["copy", "reverse", "next", "add", "close"]
Problem = tuple[Sequence[str], Sequence[str]]
"""The symbols of a task, and those of its solution."""


class Algo(Corpus):
    """So many documents of ``together`` problems that are ``shortest`` to ``longest`` symbols long.

    Its questions are of the lengths of the text, and of up to twice the longest, which the text
    never has; and those that stand behind so many ``solved`` problems of their kind.
    """

    kind: Literal["algo"] = "algo"
    documents: int = Field(default=40_000, ge=100)
    problems: tuple[Kind, ...] = Field(default=("copy", "reverse", "add", "close"), min_length=1)
    shortest: int = Field(default=3, ge=1)
    longest: int = Field(default=8, ge=1)
    together: int = Field(default=4, ge=1)
    named: bool = True
    solved: tuple[int, ...] = ()
    seed: int = 0

    def write(self, to: Written) -> None:
        to.text.mkdir(parents=True)
        lengths = (self.shortest, self.longest)
        with open(to.text / "problems.txt", "w", encoding="utf-8") as file:
            for number in range(self.documents):
                draw = generator(key(self.seed, "algo"), number)
                kind = self.problems[int(draw.integers(len(self.problems)))]
                told = [self._told(kind, draw, lengths) for _ in range(self.together)]
                file.write(" ".join(f"{task} {solution}" for task, solution in told) + "\n\n")
        write_lines(to.questions, self._questions())

    def _questions(self) -> Iterator[dict[str, str]]:
        """Of the kinds ``copy`` and ``copy-longer``; ``solved-4`` where problems stand before."""
        within, beyond = (self.shortest, self.longest), (self.longest + 1, 2 * self.longest)
        for name in self.problems:
            yield from self._asked(name, name, 0, within)
            yield from self._asked(f"{name}-longer", name, 0, beyond)
            for solved in self.solved:
                yield from self._asked(f"solved-{solved}", name, solved, within)

    def _asked(
        self, label: str, kind: Kind, solved: int, lengths: tuple[int, int]
    ) -> Iterator[dict[str, str]]:
        draw = generator(key(self.seed, "algo", "questions", label, kind))
        for _ in range(QUESTIONS):
            before = [self._told(kind, draw, lengths) for _ in range(solved)]
            task, solution = self._told(kind, draw, lengths)
            prompt = " ".join([*(" ".join(each) for each in before), task])
            yield {"prompt": prompt, "answer": solution, "kind": label}

    def _told(
        self, kind: Kind, draw: np.random.Generator, lengths: tuple[int, int]
    ) -> tuple[str, str]:
        """A task up to its equals sign, and its solution with a full stop."""
        length = int(draw.integers(lengths[0], lengths[1] + 1))
        task, solution = KINDS[kind](length, draw)
        name = [kind] if self.named else []
        return " ".join([*name, *task, "="]), " ".join([*solution, "."])


def _letters(length: int, draw: np.random.Generator) -> list[str]:
    return [LETTERS[n] for n in draw.integers(len(LETTERS), size=length)]


def _copy(length: int, draw: np.random.Generator) -> Problem:
    letters = _letters(length, draw)
    return letters, letters


def _reverse(length: int, draw: np.random.Generator) -> Problem:
    letters = _letters(length, draw)
    return letters, letters[::-1]


def _next(length: int, draw: np.random.Generator) -> Problem:
    """The letter behind each; behind the last one comes the first."""
    letters = _letters(length, draw)
    return letters, [LETTERS[(LETTERS.index(each) + 1) % len(LETTERS)] for each in letters]


def _add(length: int, draw: np.random.Generator) -> Problem:
    """Two numbers of as many digits, and their sum of one more: the ones first, as one adds."""
    numbers = draw.integers(10, size=(2, length)).tolist()
    one, other = ["".join(map(str, digits)) for digits in numbers]
    total = str(int(one) + int(other)).zfill(length + 1)
    return [*one[::-1], "+", *other[::-1]], list(total[::-1])


def _close(length: int, draw: np.random.Generator) -> Problem:
    """Brackets, and what closes those that are still open."""
    written: list[str] = []
    still: list[str] = []
    for _ in range(length):
        if still and draw.random() < 0.4:
            written.append(CLOSING[still.pop()])
        else:
            still.append("([{"[int(draw.integers(3))])
            written.append(still[-1])
    return written, [CLOSING[bracket] for bracket in reversed(still)]


KINDS: dict[Kind, Callable[[int, np.random.Generator], Problem]] = {
    "copy": _copy,
    "reverse": _reverse,
    "next": _next,
    "add": _add,
    "close": _close,
}
