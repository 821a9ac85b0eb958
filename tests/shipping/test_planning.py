"""Of all that keeps to a goal that is planned which loses least, as far as it is seen before."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertwright.compression.method import Method
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.shipping import planning
from bertwright.shipping.candidates import Candidate
from bertwright.shipping.forms import FORMS, PLAIN, Form
from bertwright.shipping.goal import Goal
from bertwright.shipping.planning import Planner
from bertwright.shipping.shapes import SHARES, Shape
from bertwright.tasks.answers import ClassAnswer, RelevanceAnswer
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import toy
from small_tasks import ENGLISH, classes

LAYERS = 6
WHOLE = Shape(LAYERS)
SMALLER = [Shape(n, s) for s in SHARES for n in range(1, LAYERS + 1) if (n, s) != (LAYERS, 1)]
AS_LARGE, AS_SLOW = {"weights": 4.0, "int8": 1.0}, {"weights": 1.5, "int8": 1.0}
"""What a form comes to, by its kind."""


@pytest.fixture(scope="module")
def deep() -> FineTuned:
    tokenizer = train_tokenizer([ENGLISH], WordPieceChoice(size=100))
    recipe = toy("bert", f"encoder.depth.layers={LAYERS}")
    model = TextModel(Model.build(recipe, tokenizer.size), tokenizer)
    colours = table_task("colours", Columns())
    return finetune(model, colours, train=classes(), dev=classes(), epochs=1, compile=False).model


class Known:
    """Candidates of which everything is made up: blocks weigh 1 each, and pieces 2, or 1."""

    def __init__(self) -> None:
        self.known: list[Candidate] = []

    def at(self, shape: Shape, form: Form) -> Candidate:
        parts = shape.layers * shape.share + (1 if form.trimmed else 2)
        size, taken = (
            int(1000 * AS_LARGE[form.kind] * parts),
            AS_SLOW[form.kind] * (0.1 + shape.layers * (0.2 + shape.share)),
        )
        self.known.append(Candidate(shape, form, size, taken))
        return self.known[-1]


shares = st.integers(-20, 50).map(lambda number: number / 1024)
"""Of a score; a hundred of them, which are points, are told without rounding."""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(
    st.none() | st.floats(500, 33_000),
    st.none() | st.floats(0.1, 12),
    st.none() | st.integers(0, 40).map(lambda number: 100 * number / 1024),
    st.tuples(shares, shares, shares),
    st.lists(st.floats(0, 3), min_size=len(SMALLER), max_size=len(SMALLER), unique=True),
)
def test_what_keeps_to_a_goal_and_loses_least_is_planned(
    deep: FineTuned,
    monkeypatch: pytest.MonkeyPatch,
    size: float | None,
    milliseconds: float | None,
    may_lose: float | None,
    lost: tuple[float, ...],
    losses: list[float],
) -> None:
    goal = Goal(size, milliseconds, points=may_lose)
    loses = {form: 100 * share for form, share in zip(FORMS, (0.0, *lost), strict=True)}
    loss_of: Callable[[Shape], float] = dict(zip(SMALLER, losses, strict=True)).__getitem__
    score = dict(zip(FORMS, (0.0, *(-share for share in lost)), strict=True))
    monkeypatch.setattr(Planner, "_score", lambda self, form: score[form])
    monkeypatch.setattr(planning, "left_of", lambda model, shape, _: shape)
    monkeypatch.setattr(planning, "loss_of", lambda shape, _: loss_of(shape))
    known = Known()
    method = Method.load("output-distillation")
    planner = Planner(deep, goal, method, known, [], [], lambda line: None)  # type: ignore[arg-type]

    forms = [
        form
        for form in FORMS
        if (form is PLAIN or goal.loses(loses[form])) and (size is not None or not form.trimmed)
    ]

    def kept(shape: Shape) -> list[Form]:
        return [
            f
            for f in forms
            if goal.keeps(known.at(shape, f).bytes, known.at(shape, f).milliseconds)
        ]

    least = [shape for shape in SMALLER if kept(shape)]
    if not kept(WHOLE) and not least:
        with pytest.raises(UserError, match="nothing keeps to the goal"):
            planner.plan()
        return
    plan = planner.plan()
    assert goal.keeps(plan.chosen.bytes, plan.chosen.milliseconds)
    shape, form = plan.chosen.shape, plan.chosen.form
    assert max(loses[form], 0) == min(max(loses[f], 0) for f in kept(shape))
    if kept(WHOLE):
        assert (shape, plan.model) == (WHOLE, None)
        return
    assert plan.model is not None
    # What has as many layers and a larger share, or as large a share and more layers, is larger.
    largest = [
        own
        for own in least
        if not any(o != own and o.layers >= own.layers and o.share >= own.share for o in least)
    ]
    assert shape in largest
    assert loss_of(shape) == min(map(loss_of, largest))


def test_what_is_ranked_is_judged_by_whole_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MOST_JUDGED", 10)
    texts = [Example(f"question {n}", f"text {m}") for n in range(6) for m in range(5)]
    ranked = Counter(each.first for each in planning.judged(RelevanceAnswer(), texts))
    assert sorted(ranked.values()) == [5, 5]
    assert len(planning.judged(ClassAnswer(), texts)) == 10
