"""Every check holds for our own choices."""

from pathlib import Path

import pytest

from bertwright.analysis.core.analysis import Analysis
from bertwright.interop.huggingface.families.registry import FAMILIES
from bertwright.objectives import Objective
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.formats.dependency_trees import DependencyTree
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.testing import (
    check_analysis,
    check_family,
    check_objective,
    check_recipe,
    check_task,
)
from bertwright.testing.analyses import toy_analysis_input
from documented_plugins import LABELLED_LINES, ShuffledTokens, read_example
from small_tasks import classes, numbers, pairs, tagged

OBJECTIVES: dict[str, tuple[str, ...]] = {
    "contrastive": ("assembly={kind: sentence-groups, sentences: 2, length: 24}",),
    "denoising": ("decoder={}", "assembly={kind: doc-sentences, length: 24}"),
    "dialogue": ("assembly={kind: dialogue, length: 24}",),
    "neighbouring-sentences": ("assembly={kind: sentence-groups, length: 24}",),
    "ponder": ("encoder.depth={kind: halting, layers: 2}",),
}
"""Overrides of objectives that need more than BERT."""

NEEDS_ANOTHER = {"replaced-token", "span-boundary", "discourse-relation"}
"""Objectives that are checked in their recipes: they need another one, or a mixture of formats."""


BUILT_IN_KINDS = {
    kind
    for kind, objective in Objective.kinds().items()
    if objective.__module__[:10] == "bertwright"
}


@pytest.mark.parametrize("kind", sorted(BUILT_IN_KINDS - NEEDS_ANOTHER))
def test_laws_of_an_objective(kind: str) -> None:
    check_objective(kind, *OBJECTIVES.get(kind, ()))


def test_laws_of_a_documented_objective() -> None:
    check_objective(ShuffledTokens(), recipe="modern")


def test_laws_of_a_documented_recipe(tmp_path: Path) -> None:
    file = tmp_path / "tested.yaml"
    file.write_text(read_example("shuffled_tokens.yaml"))
    check_recipe(file)


FAMILY_OVERRIDES = {
    "distilbert": ("objectives.next-sentence=null", "encoder.embeddings.segments=0")
}
"""Overrides of families that cannot compute the recipe that continues their training."""


@pytest.mark.parametrize("model_type", FAMILIES)
def test_laws_of_a_family(model_type: str) -> None:
    check_family(model_type, *FAMILY_OVERRIDES.get(model_type, ()))


def write_labelled_lines(folder: Path, examples: list[Example], with_pairs: bool = False) -> None:
    for name, part in (("train", examples[:20]), ("dev", examples[20:])):
        columns = ["text", "pair", "label"] if with_pairs else ["text", "label"]
        rows = ["\t".join(str(getattr(example, c)) for c in columns) for example in part]
        (folder / f"{name}.tsv").write_text("\n".join(["\t".join(columns), *rows]) + "\n")


def test_laws_of_text_tasks(tmp_path: Path) -> None:
    columns = Columns("text", "pair", "label")
    write_labelled_lines(tmp_path, pairs(), with_pairs=True)
    check_task(table_task("pairs", columns), tmp_path, num_examples=len(pairs()) - 20)
    write_labelled_lines(tmp_path, numbers())
    check_task(table_task("numbers", Columns(), "number"), tmp_path, recipe="modern")


def test_laws_of_a_tagging_task(tmp_path: Path) -> None:
    for name, part in (("train", tagged()[:20]), ("dev", tagged()[20:])):
        blocks = [zip(e.words, e.tags, strict=True) for e in part if e.tags is not None]
        lines = ["".join(f"{word}\t{tag}\n" for word, tag in block) for block in blocks]
        (tmp_path / f"{name}.conll").write_text("\n".join(lines))
    check_task(tagging_task("spans"), tmp_path, num_examples=len(tagged()) - 20)


def test_laws_of_a_documented_task(tmp_path: Path) -> None:
    files = tmp_path / "train.txt", tmp_path / "dev.txt"
    for file, part in zip(files, (classes()[:20], classes()[20:]), strict=True):
        file.write_text("".join(f"{e.label}: {e.text}\n" for e in part))
    check_task(LABELLED_LINES, files, num_examples=len(classes()) - 20)


@pytest.mark.parametrize(
    "kind", ["attention-mass", "attention-norms", "token-identity", "single-heads", "change"]
)
def test_laws_of_an_analysis(kind: str) -> None:
    check_analysis(kind)


def test_laws_of_an_analysis_of_trees() -> None:
    words = ("the", "keeper", "lights", "lamps")
    relations, tags = ("det", "nsubj", "root", "obj"), ("DET", "NOUN", "VERB", "NOUN")
    tree = DependencyTree(words, (1, 2, -1, 2), relations, tags, "line 1")
    analysis = Analysis.parse("relation-heads")
    check_analysis(analysis, inputs=toy_analysis_input(texts=[tree] * 40))
