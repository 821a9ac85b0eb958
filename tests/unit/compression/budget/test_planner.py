"""The plan is the candidate that meets the goal and loses least."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertwright.compression.budget import planner as planning
from bertwright.compression.budget.candidates import (
    ARTEFACT_FORMATS,
    WEIGHTS_FORMAT,
    ArtefactFormat,
    BudgetCandidate,
)
from bertwright.compression.budget.goal import Goal
from bertwright.compression.budget.planner import BudgetPlanner
from bertwright.compression.budget.shapes import (
    KEPT_FRACTIONS,
    ModelShape,
    require_supported_shape,
)
from bertwright.compression.method import CompressionMethod
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.outputs import ClassificationOutput, RelevanceOutput
from small_tasks import ENGLISH, classes
from toy_recipes import toy

NUM_LAYERS = 6
FULL_SHAPE = ModelShape(NUM_LAYERS)
PRUNED_SHAPES = [
    shape
    for fraction in KEPT_FRACTIONS
    for n in range(1, NUM_LAYERS + 1)
    if (shape := ModelShape(n, fraction)) != FULL_SHAPE
]
RELATIVE_SIZE = {"weights": 4.0, "int8": 1.0}
RELATIVE_TIME = {"weights": 1.5, "int8": 1.0}


@pytest.fixture(scope="module")
def deep_model() -> FineTunedModel:
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=100))
    recipe = toy("bert", f"encoder.depth.layers={NUM_LAYERS}")
    model = TextModel(Model.build(recipe, tokenizer.vocab_size), tokenizer)
    colours = table_task("colours", Columns())
    return finetune(model, colours, train=classes(), dev=classes(), epochs=1, compile=False).model


class FakePool:
    """Candidates with made-up costs: a block weighs 1, the embeddings 2, or 1 if pruned."""

    def __init__(self) -> None:
        self.measured: list[BudgetCandidate] = []

    def measure(self, shape: ModelShape, format: ArtefactFormat) -> BudgetCandidate:
        blocks = shape.num_layers * shape.kept_fraction
        size = int(1000 * RELATIVE_SIZE[format.kind] * (blocks + 2 - format.prunes_vocabulary))
        seconds = 0.1 + shape.num_layers * (0.2 + shape.kept_fraction)
        candidate = BudgetCandidate(shape, format, size, RELATIVE_TIME[format.kind] * seconds)
        self.measured.append(candidate)
        return candidate


score_drops = st.integers(-20, 50).map(lambda number: number / 1024)
"""Fractions whose hundredfold, in points, is exact."""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(
    st.none() | st.floats(500, 33_000),
    st.none() | st.floats(0.1, 12),
    st.none() | st.integers(0, 40).map(lambda number: 100 * number / 1024),
    st.tuples(score_drops, score_drops, score_drops),
    st.lists(
        st.floats(0, 3), min_size=len(PRUNED_SHAPES), max_size=len(PRUNED_SHAPES), unique=True
    ),
)
def test_plan_meets_the_goal_and_loses_least(
    deep_model: FineTunedModel,
    monkeypatch: pytest.MonkeyPatch,
    max_bytes: float | None,
    milliseconds: float | None,
    max_lost_points: float | None,
    drops: tuple[float, ...],
    losses: list[float],
) -> None:
    goal = Goal(max_bytes, milliseconds, max_lost_points=max_lost_points)
    drop_of = dict(zip(ARTEFACT_FORMATS, (0.0, *drops), strict=True))
    loss_of: Callable[[ModelShape], float] = dict(
        zip(PRUNED_SHAPES, losses, strict=True)
    ).__getitem__
    monkeypatch.setattr(BudgetPlanner, "_score", lambda self, format: -drop_of[format])
    monkeypatch.setattr(planning, "prune_to_shape", lambda model, shape, _: shape)
    monkeypatch.setattr(planning, "sampled_loss", lambda shape, _: loss_of(shape))
    pool = FakePool()
    method = CompressionMethod.load("output-distillation")
    planner = BudgetPlanner(deep_model, goal, method, pool, [], [], lambda line: None)  # type: ignore[arg-type]

    allowed = [
        format
        for format in ARTEFACT_FORMATS
        if (format is WEIGHTS_FORMAT or goal.allows_loss(100 * drop_of[format]))
        and (max_bytes is not None or not format.prunes_vocabulary)
    ]

    def feasible_formats(shape: ModelShape) -> list[ArtefactFormat]:
        candidates = [pool.measure(shape, format) for format in allowed]
        return [c.format for c in candidates if goal.is_met(c.num_bytes, c.milliseconds)]

    feasible = [shape for shape in PRUNED_SHAPES if feasible_formats(shape)]
    if not feasible_formats(FULL_SHAPE) and not feasible:
        with pytest.raises(UserError, match="no candidate meets the goal"):
            planner.plan()
        return
    plan = planner.plan()
    assert goal.is_met(plan.candidate.num_bytes, plan.candidate.milliseconds)
    shape, format = plan.candidate.shape, plan.candidate.format
    assert max(drop_of[format], 0) == min(max(drop_of[f], 0) for f in feasible_formats(shape))
    if feasible_formats(FULL_SHAPE):
        assert (shape, plan.model) == (FULL_SHAPE, None)
        return
    assert plan.model is not None
    largest = [
        small
        for small in feasible
        if not any(
            other != small
            and other.num_layers >= small.num_layers
            and other.kept_fraction >= small.kept_fraction
            for other in feasible
        )
    ]
    assert shape in largest
    assert loss_of(shape) == min(map(loss_of, largest))


def test_an_infeasible_goal_names_what_comes_closest(
    deep_model: FineTunedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop_of = dict(zip(ARTEFACT_FORMATS, (0.0, 0.0625, 0.03125, -0.25), strict=True))
    monkeypatch.setattr(BudgetPlanner, "_score", lambda self, format: -drop_of[format])
    goal, method = Goal(100, 0.01, max_lost_points=4), CompressionMethod.load("output-distillation")
    log: list[str] = []
    planner = BudgetPlanner(deep_model, goal, method, FakePool(), [], [], log.append)  # type: ignore[arg-type]
    with pytest.raises(UserError) as error:
        planner.plan()
    assert str(error.value).startswith(
        "no candidate meets the goal: the smallest (1 layer, 25% of heads and units, 8 bits, "
        "pruned vocabulary) has 0.00125 MB, 0.55 ms; the fastest (1 layer, 25% of heads and units, "
        "8 bits, pruned vocabulary) takes 0.55 ms; 8 bits would lose 6.25 points: relax the goal"
    )
    assert planner.estimates() == {
        "lost_points_by_format": {f.name: 100 * drop for f, drop in drop_of.items()},
        "loss_by_shape": {},
    }
    assert log == [
        "8 bits: +6.25 points lost",
        "weights, pruned vocabulary: +3.12 points lost",
        "8 bits, pruned vocabulary: -25.00 points lost",
    ]


@pytest.mark.parametrize("shape", PRUNED_SHAPES[-2:])
def test_the_smallest_shapes_are_planned(
    deep_model: FineTunedModel, monkeypatch: pytest.MonkeyPatch, shape: ModelShape
) -> None:
    """At the size of a shape and one kept fraction, it has the most layers."""
    monkeypatch.setattr(BudgetPlanner, "_score", lambda self, format: 1.0)
    monkeypatch.setattr(planning, "KEPT_FRACTIONS", KEPT_FRACTIONS[-1:])
    monkeypatch.setattr(planning, "prune_to_shape", lambda model, shape, _: shape)
    monkeypatch.setattr(planning, "sampled_loss", lambda shape, _: 1.0)
    pool, method = FakePool(), CompressionMethod.load("output-distillation")
    size = pool.measure(shape, ARTEFACT_FORMATS[-1]).num_bytes
    planner = BudgetPlanner(deep_model, Goal(size), method, pool, [], [], lambda line: None)  # type: ignore[arg-type]
    assert planner.plan().candidate.shape == shape


def test_kept_fractions_fall_from_everything() -> None:
    assert KEPT_FRACTIONS[0] == 1
    assert all(1 >= a > b > 0 for a, b in pairwise(KEPT_FRACTIONS))


def supports(system: str, *shape: float) -> bool:
    """Return whether a model of a system with two blocks can be pruned to a shape."""
    net = SimpleNamespace(recipe=toy(system), encoder=SimpleNamespace(blocks=[None, None]))
    model, method = SimpleNamespace(task_model=net), CompressionMethod.load("output-distillation")
    try:
        require_supported_shape(ModelShape(*shape), model, method)  # type: ignore[arg-type]
    except UserError:
        return False
    return True


def test_shapes_need_only_what_they_remove() -> None:
    """Blocks that share parameters keep their number, and blocks without attention all of it."""
    shapes = (1, 1.0), (2, 0.5), (1, 0.5)
    assert [supports("bert", *shape) for shape in shapes] == [True, True, True]
    assert [supports("albert", *shape) for shape in shapes] == [False, True, False]
    assert [supports("elmo", *shape) for shape in shapes] == [True, False, False]


def test_ranking_samples_whole_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MAX_EVALUATION_EXAMPLES", 10)
    examples = [Example(f"question {n}", f"text {m}") for n in range(6) for m in range(5)]
    ranking_sample = planning.evaluation_sample(RelevanceOutput(), examples)
    assert sorted(Counter(example.text for example in ranking_sample).values()) == [5, 5]
    assert len(planning.evaluation_sample(ClassificationOutput(), examples)) == 10
    # There is always a question.
    monkeypatch.setattr(planning, "MAX_EVALUATION_EXAMPLES", 3)
    assert len(planning.evaluation_sample(RelevanceOutput(), examples)) == 5
