"""The corpus of algorithmic problems."""

import json
from pathlib import Path

import pytest

from bertwright.studies.corpora import AlgorithmicCorpus, CorpusFolder
from bertwright.studies.corpora.algorithmic import CLOSING, LETTERS

CORPUS = AlgorithmicCorpus(
    documents=200,
    problems=("copy", "reverse", "next", "add", "close"),
    problems_per_document=3,
    num_shots=(0, 2),
)


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> CorpusFolder:
    folder = CorpusFolder(tmp_path_factory.mktemp("algo") / "corpus")
    CORPUS.write(folder)
    return folder


def solve(kind: str, symbols: list[str]) -> list[str]:
    """Return the solution, computed by another method."""
    if kind == "add":
        first, second = (int("".join(s.split())[::-1]) for s in " ".join(symbols).split("+"))
        return list(f"{first + second:0{len(symbols) // 2 + 1}d}"[::-1])
    if kind == "close":
        text = "".join(symbols)
        while any(pair in text for pair in ("()", "[]", "{}")):
            for pair in ("()", "[]", "{}"):
                text = text.replace(pair, "")
        return [CLOSING[bracket] for bracket in reversed(text)]
    shifted = str.maketrans(LETTERS, LETTERS[1:] + LETTERS[0])
    return {
        "copy": symbols,
        "reverse": symbols[::-1],
        "next": list("".join(symbols).translate(shifted)),
    }[kind]


def test_problems_of_the_text_are_solved_correctly(corpus_folder: CorpusFolder) -> None:
    documents = (corpus_folder.text / "problems.txt").read_text().split("\n\n")[:-1]
    assert len(documents) == CORPUS.documents
    all_kinds: set[str] = set()
    for document in documents:
        problems = [problem.strip() for problem in document.split(".") if problem.strip()]
        kinds = {problem.split()[0] for problem in problems}
        assert len(problems) == CORPUS.problems_per_document
        assert len(kinds) == 1
        all_kinds |= kinds
        for problem in problems:
            task, solution = problem.split("=")
            kind, *symbols = task.split()
            assert solution.split() == solve(kind, symbols)
    assert all_kinds == set(CORPUS.problems)


def test_continuations_are_correct(corpus_folder: CorpusFolder) -> None:
    longest: dict[str, int] = {}
    for line in corpus_folder.prompts.read_text().splitlines():
        prompt = json.loads(line)
        *shots, last = prompt["prompt"].removesuffix("=").split(".")
        kind, *symbols = last.split()
        assert prompt["continuation"].split() == [*solve(kind, symbols), "."]
        label = prompt["kind"]
        if label.startswith("solved-"):
            assert len(shots) == int(label.removeprefix("solved-"))
        length = len(symbols) // 2 if kind == "add" else len(symbols)
        longest[label] = max(longest.get(label, 0), length)
        assert (length > CORPUS.max_symbols) == label.endswith("-longer")
    assert longest["copy"] == CORPUS.max_symbols
    assert longest["copy-longer"] == 2 * CORPUS.max_symbols


def test_names_of_problems_can_be_left_out(tmp_path: Path) -> None:
    folder = CorpusFolder(tmp_path / "corpus")
    AlgorithmicCorpus(documents=100, problems=("copy", "reverse"), with_names=False).write(folder)
    words = set((folder.text / "problems.txt").read_text().split())
    assert words == {*LETTERS, "=", "."}


def test_corpus_is_reproducible(corpus_folder: CorpusFolder, tmp_path: Path) -> None:
    CORPUS.write(CorpusFolder(tmp_path / "again"))
    for file in ("text/problems.txt", "prompts.jsonl"):
        assert (tmp_path / "again" / file).read_bytes() == (
            corpus_folder.folder / file
        ).read_bytes()
