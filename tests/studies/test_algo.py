"""Problems made to order have right solutions."""

import json
from pathlib import Path

import pytest

from bertwright.studies.corpora import Algo, Written
from bertwright.studies.corpora.algo import CLOSING, LETTERS

CHOICE = Algo(
    documents=200, problems=("copy", "reverse", "next", "add", "close"), together=3, solved=(0, 2)
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    written = Written(tmp_path_factory.mktemp("algo") / "corpus")
    CHOICE.write(written)
    return written


def solved(kind: str, task: list[str]) -> list[str]:
    """The solution, found in another way."""
    if kind == "add":
        one, other = (int("".join(side.split())[::-1]) for side in " ".join(task).split("+"))
        return list(f"{one + other:0{len(task) // 2 + 1}d}"[::-1])
    if kind == "close":
        text = "".join(task)
        while any(pair in text for pair in ("()", "[]", "{}")):
            for pair in ("()", "[]", "{}"):
                text = text.replace(pair, "")
        return [CLOSING[bracket] for bracket in reversed(text)]
    shifted = str.maketrans(LETTERS, LETTERS[1:] + LETTERS[0])
    return {
        "copy": task,
        "reverse": task[::-1],
        "next": list("".join(task).translate(shifted)),
    }[kind]


def test_every_problem_of_the_text_is_solved_right(written: Written) -> None:
    documents = (written.text / "problems.txt").read_text().split("\n\n")[:-1]
    assert len(documents) == CHOICE.documents
    met: set[str] = set()
    for document in documents:
        told = [problem.strip() for problem in document.split(".") if problem.strip()]
        kinds = {problem.split()[0] for problem in told}
        assert len(told) == CHOICE.together
        assert len(kinds) == 1
        met |= kinds
        for problem in told:
            task, solution = problem.split("=")
            kind, *symbols = task.split()
            assert solution.split() == solved(kind, symbols)
    assert met == set(CHOICE.problems)


def test_every_answer_is_the_right_one(written: Written) -> None:
    longest: dict[str, int] = {}
    for line in written.questions.read_text().splitlines():
        asked = json.loads(line)
        *before, last = asked["prompt"].removesuffix("=").split(".")
        kind, *symbols = last.split()
        assert asked["answer"].split() == [*solved(kind, symbols), "."]
        label = asked["kind"]
        if label.startswith("solved-"):
            assert len(before) == int(label.removeprefix("solved-"))
        length = len(symbols) // 2 if kind == "add" else len(symbols)
        longest[label] = max(longest.get(label, 0), length)
        assert (length > CHOICE.longest) == label.endswith("-longer")
    assert longest["copy"] == CHOICE.longest
    assert longest["copy-longer"] == 2 * CHOICE.longest


def test_without_names_only_the_problems_tell_what_is_to_be_done(tmp_path: Path) -> None:
    written = Written(tmp_path / "corpus")
    Algo(documents=100, problems=("copy", "reverse"), named=False).write(written)
    words = set((written.text / "problems.txt").read_text().split())
    assert words == {*LETTERS, "=", "."}


def test_the_same_choice_writes_the_same_bytes(written: Written, tmp_path: Path) -> None:
    CHOICE.write(Written(tmp_path / "again"))
    for file in ("text/problems.txt", "questions.jsonl"):
        assert (tmp_path / "again" / file).read_bytes() == (written.folder / file).read_bytes()
