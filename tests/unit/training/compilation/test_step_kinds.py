"""Step variants: steps with the same compiled graph and toolchain."""

import pytest

from bertwright.runtime import compiler
from bertwright.training.clock import Progress
from bertwright.training.compilation import step_variants
from bertwright.training.compilation.step_variants import StepVariants
from small_recipe import small


def variants(*changes: str, precision: str = "float32", threads: int = 1) -> StepVariants:
    return StepVariants(small("modern", *changes), 120, precision, threads)


def test_every_variant_has_one_representative() -> None:
    three = variants()
    keys = [three.key(progress) for progress in three.representatives()]
    assert len(keys) == len(set(keys)) == len(three) == 3
    assert [progress.phase for progress in three.representatives()] == [0, 1, 2]


def test_alternating_objectives_are_different_variants() -> None:
    two = variants("phases=[{objectives: {masked: {fraction: 1}, causal: {fraction: 1}}}]")
    assert len(list(two.representatives())) == len(two) == 2


@pytest.mark.parametrize(
    "other",
    [
        variants("encoder.width=48"),
        variants("batch_tokens=512"),
        variants("optimiser.kind=adamw"),
        variants(precision="bf16"),
        variants(threads=2),
    ],
)
def test_another_graph_is_another_variant(other: StepVariants) -> None:
    start = Progress(0, 0.0)
    assert other.key(start) != variants().key(start)


def test_the_same_graph_is_the_same_variant() -> None:
    start = Progress(0, 0.0)
    assert variants("steps=7", "seed=3", "optimiser.learning_rate=1").key(start) == variants().key(
        start
    )


def test_another_toolchain_is_another_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Progress(0, 0.0)
    before = variants().key(start)
    monkeypatch.setattr(step_variants, "toolchain", lambda: compiler.toolchain() + " 2")
    assert variants().key(start) != before
