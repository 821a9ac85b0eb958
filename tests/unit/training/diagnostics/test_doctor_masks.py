"""The doctor detects wrong masks of every kind, and accepts correct ones."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from bertwright.batches.masking import TokenSelection
from bertwright.batches.masking.corruption import TokenReplacement
from bertwright.batches.targets import Targets
from bertwright.data.shards.dataset import Dataset
from bertwright.modules.attention.mask import Visibility
from bertwright.recipes import Recipe
from bertwright.training.diagnostics.doctor.batch_samples import SampledBatches, sample_batches
from bertwright.training.diagnostics.doctor.diagnostic import Diagnostic, merge_phases
from bertwright.training.diagnostics.doctor.isolation import check_isolation
from bertwright.training.diagnostics.doctor.target_checks import check_targets
from small_recipe import small
from toy_recipes import SYSTEMS, toy

PHASES = "phases=[{objectives: {masked: {}}}]"


class NoCorruption(TokenReplacement):
    """Masks nothing."""

    kind: Literal["no-corruption"] = "no-corruption"

    def corrupt(self, batch, selected, vocabulary, rng):
        return batch.token_ids


class Shifted(TokenReplacement):
    """Masks the position after the selected one."""

    kind: Literal["shifted"] = "shifted"

    def corrupt(self, batch, selected, vocabulary, rng):
        positions = np.minimum(selected.positions + 1, batch.token_ids.shape[1] - 1)
        return super().corrupt(batch, replace(selected, positions=positions), vocabulary, rng)


class Frozen(TokenReplacement):
    """Claims to be dynamic, but repeats its masks."""

    kind: Literal["frozen"] = "frozen"

    def repeated_epoch(self, epoch):
        return np.zeros_like(epoch)


class Greedy(TokenSelection):
    """Selects twice as many positions as requested."""

    kind: Literal["greedy"] = "greedy"

    def select_positions(self, batch, vocabulary, rng, num_to_mask, num_slots):
        return super().select_positions(batch, vocabulary, rng, 2 * num_to_mask, 2 * num_slots)


class Leaky(Visibility):
    """Makes the next position visible, and other documents."""

    kind: Literal["leaky"] = "leaky"

    def visible(self, query, key):
        return (key.index <= query.index + 1) | (query.document_ids != key.document_ids)


def check_recipe(recipe: Recipe, data: Dataset, phase: int = 0) -> dict[str, Diagnostic]:
    return check_samples(sample_batches(recipe, data, phase), recipe, data)


def check_samples(samples: SampledBatches, recipe: Recipe, data: Dataset) -> dict[str, Diagnostic]:
    objectives = recipe.objectives_of(samples.phase)
    results = check_targets(samples, objectives, data.tokenizer)
    results += check_isolation(
        samples, recipe, list(objectives.values()), data.tokenizer.vocab_size
    )
    return {d.check.removeprefix("masks."): d for d in merge_phases(results)}


def not_ok(diagnostics: dict[str, Diagnostic]) -> dict[str, str]:
    return {name: d.severity for name, d in diagnostics.items() if d.severity != "ok"}


CAUSAL = "objectives={causal: {}, masked: null}"


@pytest.mark.parametrize(
    ("system", "changes", "checks"),
    [
        (
            "modern",
            [PHASES],
            {"masking-rate", "targets", "special-tokens", "repetition", "documents"},
        ),
        (
            "modern",
            [PHASES, "objectives.masked.selection.kind=whole-words"],
            {"masking-rate", "corruption-rates"},
        ),
        ("modern", [PHASES, "objectives.masked.corruption.unit=selected"], {"corruption-rates"}),
        ("modern", [PHASES, "assembly={kind: doc-sentences, length: 64}"], {"padding"}),
        ("modern", ["phases=[{}]", CAUSAL], {"targets", "special-tokens", "documents", "future"}),
        ("bert", ["phases=[{}]"], {"labels", "padding", "repetition"}),
        (
            "roberta",
            ["phases=[{}]", "text.tokenizer.kind=wordpiece"],
            {"corruption-rates", "repetition"},
        ),
    ],
)
def test_correct_masks_are_ok(
    system: str, changes: list[str], checks: set[str], data: Dataset
) -> None:
    diagnostics = check_recipe(small(system, *changes), data)
    assert not_ok(diagnostics) == {}
    assert checks <= diagnostics.keys()


BACKWARD = (
    "objectives.causal.direction=backward",
    "encoder.visibility={kind: and, rules: [reversed, document]}",
    "encoder.memory_length=0",
)


@pytest.mark.parametrize(("system", "changes"), [("elmo", ()), ("lstm-lm", BACKWARD)])
def test_correct_targets_in_other_directions_are_ok(
    system: str, changes: tuple[str, ...], data: Dataset
) -> None:
    recipe = toy(system, f"text.tokenizer.vocab_size={data.tokenizer.vocab_size}", *changes)
    diagnostics = check_recipe(recipe, data)
    assert not_ok(diagnostics) == {}
    assert {"targets", "special-tokens", "unique-targets"} <= diagnostics.keys()


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_targets_of_every_system_are_correct(system: str, rich_data: Dataset) -> None:
    recipe = toy(system, f"text.tokenizer.vocab_size={rich_data.tokenizer.vocab_size}")
    diagnostics: list[Diagnostic] = []
    for phase in range(len(recipe.phases)):
        for group in recipe.objective_schedule(phase):
            samples = sample_batches(recipe, rich_data, phase, group.objectives)
            diagnostics += check_targets(samples, group.objectives, rich_data.tokenizer)
    assert [d for d in diagnostics if d.severity == "error"] == []


@pytest.mark.parametrize(
    ("kind", "severities"),
    [
        ("no-corruption", {"corruption-rates": "error"}),
        ("shifted", {"corruption-rates": "error", "unchanged-tokens": "error"}),
        ("frozen", {"repetition": "error"}),
    ],
)
def test_a_wrong_corruption_is_reported(
    kind: str, severities: dict[str, str], data: Dataset
) -> None:
    recipe = small("modern", PHASES, f"objectives.masked.corruption.kind={kind}")
    diagnostics = check_recipe(recipe, data)
    assert not_ok(diagnostics) == severities
    assert all("objectives.masked" in diagnostics[name].advice for name in severities)


def test_a_selection_of_too_many_tokens_is_reported(data: Dataset) -> None:
    recipe = small(
        "modern", PHASES, "objectives.masked.selection={kind: greedy, masking_rate: 0.15}"
    )
    diagnostics = check_recipe(recipe, data)
    assert not_ok(diagnostics) == {"masking-rate": "warning"}
    assert diagnostics["masking-rate"].metrics["achieved"] == pytest.approx(0.3, abs=0.03)


def change_targets(samples: SampledBatches, change: Callable[[Targets], Targets]) -> SampledBatches:
    targets = {name: change(targets) for name, targets in samples.batch.targets.items()}
    return replace(samples, batch=replace(samples.batch, targets=targets))


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda t: replace(t, labels=np.roll(t.labels, 1)), "targets"),
        (lambda t: replace(t, positions=t.positions // 32 * 32), "special-tokens"),
        (lambda t: replace(t, positions=t.positions * 0 + t.positions[0]), "unique-targets"),
    ],
)
def test_wrong_targets_are_reported(
    change: Callable[[Targets], Targets], check: str, data: Dataset
) -> None:
    recipe = small("modern", PHASES)
    samples = change_targets(sample_batches(recipe, data, 0), change)
    assert check_samples(samples, recipe, data)[check].severity == "error"


def test_a_causal_target_in_another_document_is_reported(data: Dataset) -> None:
    recipe = small("modern", "phases=[{}]", CAUSAL)
    samples = change_targets(
        sample_batches(recipe, data, 0), lambda t: replace(t, weights=np.ones_like(t.weights))
    )
    assert check_samples(samples, recipe, data)["special-tokens"].severity == "error"


def test_static_masks_that_do_not_repeat_are_reported(data: Dataset) -> None:
    recipe = small("bert", "phases=[{}]")
    samples = sample_batches(recipe, data, 0)
    assert samples.repeated_epoch is not None
    diagnostics = check_samples(replace(samples, repeated_epoch=samples.next_epoch), recipe, data)
    assert not_ok(diagnostics) == {"repetition": "error"}


def test_unbalanced_labels_are_reported(data: Dataset) -> None:
    recipe = small("bert", "phases=[{}]", "objectives.masked=null")
    samples = sample_batches(recipe, data, 0)
    ones = np.ones_like(samples.originals.relation)
    samples = replace(samples, originals=replace(samples.originals, relation=ones))
    samples = change_targets(samples, lambda t: replace(t, labels=ones))
    assert not_ok(check_samples(samples, recipe, data)) == {"labels": "warning"}


def test_visible_documents_are_reported(data: Dataset) -> None:
    diagnostics = check_recipe(
        small("modern", PHASES, "encoder.visibility.kind=bidirectional"), data
    )
    assert not_ok(diagnostics) == {"documents": "warning"}
    assert "encoder.visibility.kind=document" in diagnostics["documents"].advice


def test_a_leaky_visibility_is_reported(data: Dataset) -> None:
    recipe = small("modern", "phases=[{}]", CAUSAL, "encoder.visibility.kind=leaky")
    assert not_ok(check_recipe(recipe, data)) == {"documents": "warning"}
