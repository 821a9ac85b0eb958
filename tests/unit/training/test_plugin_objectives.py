"""An objective defined outside the package is generated with, ranked, evaluated, examined and
exported like our own, because no other package asks for the class of an objective."""

import ast
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pytest

import bertwright
from bertwright.batches.targets import Targets, next_token_targets, token_targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.models import Model
from bertwright.modules.attention.mask import CausalVisibility, Visibility
from bertwright.objectives import Objective
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.objective import MaskingContext
from bertwright.recipes import Recipe
from bertwright.testing import check_objective
from bertwright.testing.toy import toy_text_model
from bertwright.training.diagnostics.doctor.batch_samples import sample_batches
from bertwright.training.diagnostics.doctor.diagnostic import Diagnostic
from bertwright.training.diagnostics.doctor.target_checks import check_targets
from bertwright.training.evaluation.held_out import evaluate
from bertwright.training.evaluation.next_item import next_item_metrics
from toy_recipes import toy

TEXTS = ["the cat sees a dog and the dog sees the sea", "a cat sits by the sea"]


class EverySixth(Objective):
    """Mask every sixth token, from a random one on."""

    kind: Literal["every-sixth"] = "every-sixth"

    capabilities: ClassVar[Capabilities] = Capabilities(
        prediction="masked", predicts_tokens=True, masks_input=True
    )

    def make_targets(
        self, batch: SequenceBatch, context: MaskingContext
    ) -> tuple[SequenceBatch, Targets]:
        length = batch.token_ids.shape[1]
        first = context.rng.fold_in("every-sixth").integers(6)
        positions = first + 6 * np.arange(length // 6)
        is_text = ~np.take_along_axis(batch.is_special, positions, axis=1)
        token_ids = batch.token_ids.copy()
        sequences = np.nonzero(is_text)[0]
        token_ids[sequences, positions[is_text]] = context.vocabulary.specials.mask
        targets = token_targets(batch, positions, is_text.astype(np.float32))
        return replace(batch, token_ids=token_ids), targets


class NextOnly(Objective):
    """Predict the next token."""

    kind: Literal["next-only"] = "next-only"

    capabilities: ClassVar[Capabilities] = Capabilities(prediction="causal", predicts_tokens=True)

    @property
    def visibility(self) -> Visibility:
        return CausalVisibility()

    def make_targets(
        self, batch: SequenceBatch, context: MaskingContext
    ) -> tuple[SequenceBatch, Targets]:
        return batch, next_token_targets(batch)


PLUGINS = pytest.mark.parametrize("kind", ["every-sixth", "next-only"])


def changes(kind: str) -> tuple[str, ...]:
    """Changes that make it the only objective of BERT."""
    return f"objectives={{masked: null, next-sentence: null, {kind}: {{}}}}", "phases=[{}]"


@PLUGINS
def test_it_generates_and_scores(kind: str) -> None:
    model = toy_text_model(TEXTS, *changes(kind))
    texts = model.generate(["the cat", "a dog"], max_new_tokens=3, temperature=0)
    assert all(text.text or text.finish_reason == "end" for text in texts)
    assert model.is_causal == (kind == "next-only") != model.is_masked_lm
    assert all(score < 0 for score in model.score(TEXTS))
    with pytest.raises(UserError, match="sweeps resample" if kind == "next-only" else "beam"):
        model.generate("the", sweeps=2, num_beams=2)


@PLUGINS
def test_it_ranks_the_next_item(kind: str, items: Dataset) -> None:
    objective = f"objectives={{masked: null, {kind}: {{}}}}"
    recipe = toy("bert4rec", objective, "phases=[{}]")
    model = Model.build(recipe, items.tokenizer.vocab_size).eval()
    metrics = next_item_metrics(model, model.recipe.objectives, items)
    assert 0 < metrics["mrr"] <= 1


@PLUGINS
def test_it_is_examined_and_evaluated(
    kind: str, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = toy("bert", *changes(kind), f"text.tokenizer.vocab_size={data.tokenizer.vocab_size}")
    model = Model.build(recipe, data.tokenizer.vocab_size)
    metrics = evaluate(model, data)
    name = kind.replace("-", "_")
    assert metrics[f"{name}_loss"] == pytest.approx(math.log(data.tokenizer.vocab_size), rel=0.1)
    assert ("unigram_entropy" in metrics) == (kind == "every-sixth")
    assert metrics["bits_per_byte"] > 0
    good = examine(recipe, data)
    assert {d.severity for d in good} == {"ok"}
    assert {"masks.targets", "masks.special-tokens"} <= {d.check for d in good}
    plugin = type(recipe.objectives[kind])
    monkeypatch.setattr(plugin, "make_targets", off_by_one(plugin))
    assert "masks.targets" in {d.check for d in examine(recipe, data) if d.severity == "error"}
    with pytest.raises(AssertionError, match=f"objective {kind}: .*not the original token"):
        check_objective(kind)


def off_by_one(plugin: type[Objective]) -> object:
    make_targets = plugin.make_targets

    def wrong(self: Objective, batch: SequenceBatch, context: MaskingContext) -> object:
        batch, targets = make_targets(self, batch, context)
        return batch, replace(targets, labels=np.maximum(targets.labels - 1, 0))

    return wrong


def examine(recipe: Recipe, data: Dataset) -> list[Diagnostic]:
    return check_targets(sample_batches(recipe, data, 0), recipe.objectives, data.tokenizer)


@PLUGINS
def test_it_obeys_the_laws(kind: str) -> None:
    check_objective(kind)


def test_it_is_exported(tmp_path: Path) -> None:
    model = toy_text_model(TEXTS, *changes("every-sixth"))
    export = export_huggingface(model.model, model.tokenizer, tmp_path / "export", verify=True)
    assert export.architecture == "BertForMaskedLM"


def class_names(base: type) -> set[str]:
    """Return the names of a class and of all classes derived from it."""
    return {base.__name__}.union(*(class_names(child) for child in base.__subclasses__()))


OBJECTIVE_CLASSES = class_names(Objective)


def class_questions(tree: ast.AST) -> Iterator[str]:
    """Yield the objective classes that a module asks for, or names in a table."""
    for node in ast.walk(tree):
        names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
        is_question = isinstance(node, ast.Call) and names[:1] in (["isinstance"], ["issubclass"])
        if is_question:
            yield from OBJECTIVE_CLASSES.intersection(names[1:])
        elif isinstance(node, ast.Dict | ast.match_case):
            yield from OBJECTIVE_CLASSES.difference({"Objective"}).intersection(names)
        elif isinstance(node, ast.ImportFrom):
            yield from OBJECTIVE_CLASSES.difference({"Objective"}).intersection(
                alias.name for alias in node.names
            )


def test_no_other_package_checks_the_class_of_an_objective() -> None:
    package = Path(bertwright.__file__).parent
    questions = {
        f"{file.relative_to(package)}: {name}"
        for file in package.rglob("*.py")
        if file.parent != package / "objectives"
        for name in class_questions(ast.parse(file.read_text(encoding="utf-8")))
    }
    assert questions == set()
    example = "isinstance(o, Objective)\nfrom x import MaskedLM\n{PonderCost: 1}"
    assert set(class_questions(ast.parse(example))) == {"Objective", "MaskedLM", "PonderCost"}
