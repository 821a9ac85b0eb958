"""Algorithmic problems as text: copies, reversals, sums and brackets.

A document has several problems of one kind; each is a task, an equals sign and the solution. Each
problem starts with the name of its kind; without it, only the preceding problems show what to do.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.core.rng import generator, stream_key
from bertwright.studies.corpora.corpus import Corpus, CorpusFolder, write_jsonl

LETTERS = "abcdefghijkl"
CLOSING = {"(": ")", "[": "]", "{": "}"}
NUM_PROMPTS = 100
"""Number of prompts per kind of problem, for the same lengths and number of shots."""

Kind = Literal["copy", "reverse", "next", "add", "close"]
Problem = tuple[Sequence[str], Sequence[str]]
"""The symbols of a task, and the symbols of its solution."""


class AlgorithmicCorpus(Corpus):
    """A corpus of documents with problems of ``min_symbols`` to ``max_symbols`` symbols.

    Some prompts have the lengths of the text; others are up to twice the maximum, which never
    occurs in the text; others follow ``num_shots`` solved problems of the same kind.
    """

    kind: Literal["algo"] = "algo"
    documents: int = Field(default=40_000, ge=100)
    problems: tuple[Kind, ...] = Field(default=("copy", "reverse", "add", "close"), min_length=1)
    min_symbols: int = Field(default=3, ge=1)
    max_symbols: int = Field(default=8, ge=1)
    problems_per_document: int = Field(default=4, ge=1)
    with_names: bool = True
    num_shots: tuple[int, ...] = ()
    seed: int = 0

    def write(self, corpus_folder: CorpusFolder) -> None:
        corpus_folder.text.mkdir(parents=True)
        lengths = (self.min_symbols, self.max_symbols)
        with open(corpus_folder.text / "problems.txt", "w", encoding="utf-8") as file:
            for number in range(self.documents):
                rng = generator(stream_key(self.seed, "algo"), number)
                kind = self.problems[int(rng.integers(len(self.problems)))]
                problems = [
                    self._problem_text(kind, rng, lengths)
                    for _ in range(self.problems_per_document)
                ]
                file.write(" ".join(f"{task} {solution}" for task, solution in problems) + "\n\n")
        write_jsonl(corpus_folder.prompts, self._prompts())

    def _prompts(self) -> Iterator[dict[str, str]]:
        """Yield prompts of kinds ``copy`` and ``copy-longer``, and ``solved-4`` with 4 shots."""
        within = (self.min_symbols, self.max_symbols)
        beyond = (self.max_symbols + 1, 2 * self.max_symbols)
        for name in self.problems:
            yield from self._prompts_of(name, name, 0, within)
            yield from self._prompts_of(f"{name}-longer", name, 0, beyond)
            for num_shots in self.num_shots:
                yield from self._prompts_of(f"solved-{num_shots}", name, num_shots, within)

    def _prompts_of(
        self, label: str, kind: Kind, num_shots: int, lengths: tuple[int, int]
    ) -> Iterator[dict[str, str]]:
        rng = generator(stream_key(self.seed, "algo", "questions", label, kind))
        for _ in range(NUM_PROMPTS):
            shots = [self._problem_text(kind, rng, lengths) for _ in range(num_shots)]
            task, solution = self._problem_text(kind, rng, lengths)
            prompt = " ".join([*(" ".join(shot) for shot in shots), task])
            yield {"prompt": prompt, "continuation": solution, "kind": label}

    def _problem_text(
        self, kind: Kind, rng: np.random.Generator, lengths: tuple[int, int]
    ) -> tuple[str, str]:
        """Return a task up to its equals sign, and its solution with a full stop."""
        length = int(rng.integers(lengths[0], lengths[1] + 1))
        task, solution = KINDS[kind](length, rng)
        name = [kind] if self.with_names else []
        return " ".join([*name, *task, "="]), " ".join([*solution, "."])


def _letters(length: int, rng: np.random.Generator) -> list[str]:
    return [LETTERS[n] for n in rng.integers(len(LETTERS), size=length)]


def _copy(length: int, rng: np.random.Generator) -> Problem:
    letters = _letters(length, rng)
    return letters, letters


def _reverse(length: int, rng: np.random.Generator) -> Problem:
    letters = _letters(length, rng)
    return letters, letters[::-1]


def _next(length: int, rng: np.random.Generator) -> Problem:
    """Return letters, and the next letter for each; after the last letter comes the first."""
    letters = _letters(length, rng)
    return letters, [LETTERS[(LETTERS.index(a) + 1) % len(LETTERS)] for a in letters]


def _add(length: int, rng: np.random.Generator) -> Problem:
    """Return two numbers and their sum, least significant digits first."""
    numbers = rng.integers(10, size=(2, length)).tolist()
    first, second = ["".join(map(str, digits)) for digits in numbers]
    total = str(int(first) + int(second)).zfill(length + 1)
    return [*first[::-1], "+", *second[::-1]], list(total[::-1])


def _close(length: int, rng: np.random.Generator) -> Problem:
    """Return brackets, and the brackets that close the open ones."""
    brackets: list[str] = []
    still_open: list[str] = []
    for _ in range(length):
        if still_open and rng.random() < 0.4:
            brackets.append(CLOSING[still_open.pop()])
        else:
            still_open.append("([{"[int(rng.integers(3))])
            brackets.append(still_open[-1])
    return brackets, [CLOSING[bracket] for bracket in reversed(still_open)]


KINDS: dict[Kind, Callable[[int, np.random.Generator], Problem]] = {
    "copy": _copy,
    "reverse": _reverse,
    "next": _next,
    "add": _add,
    "close": _close,
}
