"""Wrong masks of every kind that the doctor names, and right ones that it leaves in peace."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from small_recipe import small

from bertwright.encoder.visibility import Visibility
from bertwright.examples.corruption import Replace
from bertwright.examples.questions import Question
from bertwright.examples.selection import Tokens
from bertwright.recipes import Recipe
from bertwright.text.shards import Data
from bertwright.training.doctor.drawing import Drawn, draw
from bertwright.training.doctor.findings import Finding, merged
from bertwright.training.doctor.isolation import check_isolation
from bertwright.training.doctor.mask_checks import check_questions
from recipes_at_toy_size import SYSTEMS, toy

PHASES = "phases=[{objectives: {masked: {}}}]"


class Spared(Replace):
    """Hides nothing."""

    kind: Literal["spared"] = "spared"

    def corrupt(self, rows, chosen, vocabulary, draw):
        return rows.pieces


class Misplaced(Replace):
    """Hides the place after the one that is asked."""

    kind: Literal["misplaced"] = "misplaced"

    def corrupt(self, rows, chosen, vocabulary, draw):
        beside = np.minimum(chosen.where + 1, rows.pieces.shape[1] - 1)
        return super().corrupt(rows, replace(chosen, where=beside), vocabulary, draw)


class Frozen(Replace):
    """Says that it draws anew, and does not."""

    kind: Literal["frozen"] = "frozen"

    def visit(self, epoch):
        return np.zeros_like(epoch)


class Greedy(Tokens):
    """Asks twice as much as it is told to."""

    kind: Literal["greedy"] = "greedy"

    def chosen(self, rows, vocabulary, draw, number, slots):
        return super().chosen(rows, vocabulary, draw, 2 * number, 2 * slots)


class Blurred(Visibility):
    """Shows a place the one after it, whatever another rule hides."""

    kind: Literal["blurred"] = "blurred"

    def visible(self, query, key):
        return (key.place <= query.place + 1) | (query.document != key.document)


def examined(recipe: Recipe, data: Data, phase: int = 0) -> dict[str, Finding]:
    return judged(draw(recipe, data, phase), recipe, data)


def judged(drawn: Drawn, recipe: Recipe, data: Data) -> dict[str, Finding]:
    objectives = recipe.objectives_of(drawn.phase)
    found = check_questions(drawn, objectives, data.tokenizer)
    found += check_isolation(drawn, recipe, list(objectives.values()), data.tokenizer.size)
    return {f.check.removeprefix("masks."): f for f in merged(found)}


def bad(findings: dict[str, Finding]) -> dict[str, str]:
    return {name: f.verdict for name, f in findings.items() if f.verdict != "ok"}


CAUSAL = "objectives={causal: {}, masked: null}"


@pytest.mark.parametrize(
    ("system", "changes", "checks"),
    [
        ("modern", [PHASES], {"rate", "targets", "specials", "shares", "repetition", "documents"}),
        ("modern", [PHASES, "objectives.masked.selection.kind=whole-words"], {"rate", "shares"}),
        ("modern", [PHASES, "objectives.masked.corruption.unit=selected"], {"shares"}),
        ("modern", [PHASES, "assembly={kind: doc-sentences, length: 64}"], {"padding"}),
        ("modern", ["phases=[{}]", CAUSAL], {"targets", "specials", "documents", "future"}),
        ("bert", ["phases=[{}]"], {"labels", "padding", "repetition"}),
        ("roberta", ["phases=[{}]", "text.tokenizer.kind=wordpiece"], {"shares", "repetition"}),
    ],
)
def test_right_masks_get_no_complaint(
    system: str, changes: list[str], checks: set[str], data: Data
) -> None:
    findings = examined(small(system, *changes), data)
    assert bad(findings) == {}
    assert checks <= findings.keys()


BACKWARD = (
    "objectives.causal.direction=backward",
    "encoder.visibility={kind: and, rules: [reversed, document]}",
    "encoder.memory=0",
)


@pytest.mark.parametrize(("system", "changes"), [("elmo", ()), ("lstm-lm", BACKWARD)])
def test_right_questions_in_other_directions_get_no_complaint(
    system: str, changes: tuple[str, ...], data: Data
) -> None:
    recipe = toy(system, f"text.tokenizer.size={data.tokenizer.size}", *changes)
    findings = examined(recipe, data)
    assert bad(findings) == {}
    assert {"targets", "specials", "asked-once"} <= findings.keys()


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_system_gets_a_complaint_of_its_questions(system: str, rich_data: Data) -> None:
    recipe = toy(system, f"text.tokenizer.size={rich_data.tokenizer.size}")
    found: list[Finding] = []
    for phase in range(len(recipe.phases)):
        for turn in recipe.turns_of(phase):
            drawn = draw(recipe, rich_data, phase, turn.objectives)
            found += check_questions(drawn, turn.objectives, rich_data.tokenizer)
    assert [f for f in found if f.verdict == "error"] == []


@pytest.mark.parametrize(
    ("kind", "verdicts"),
    [
        ("spared", {"shares": "error"}),
        ("misplaced", {"shares": "error", "untouched": "error"}),
        ("frozen", {"repetition": "error"}),
    ],
)
def test_a_wrong_corruption_is_named(kind: str, verdicts: dict[str, str], data: Data) -> None:
    recipe = small("modern", PHASES, f"objectives.masked.corruption.kind={kind}")
    findings = examined(recipe, data)
    assert bad(findings) == verdicts
    assert all("objectives.masked" in findings[name].advice for name in verdicts)


def test_a_selection_that_takes_too_much_is_named(data: Data) -> None:
    recipe = small("modern", PHASES, "objectives.masked.selection={kind: greedy, rate: 0.15}")
    findings = examined(recipe, data)
    assert bad(findings) == {"rate": "warning"}
    assert findings["rate"].figures["achieved"] == pytest.approx(0.3, abs=0.03)


def with_question(drawn: Drawn, alter: Callable[[Question], Question]) -> Drawn:
    questions = {name: alter(question) for name, question in drawn.batch.questions.items()}
    return replace(drawn, batch=replace(drawn.batch, questions=questions))


@pytest.mark.parametrize(
    ("alter", "check"),
    [
        (lambda q: replace(q, target=np.roll(q.target, 1)), "targets"),
        (lambda q: replace(q, where=q.where // 32 * 32), "specials"),
        (lambda q: replace(q, where=np.roll(q.where, 1) * 0 + q.where[0]), "asked-once"),
    ],
)
def test_a_wrong_question_is_named(
    alter: Callable[[Question], Question], check: str, data: Data
) -> None:
    recipe = small("modern", PHASES)
    findings = judged(with_question(draw(recipe, data, 0), alter), recipe, data)
    assert findings[check].verdict == "error"


def test_a_causal_answer_from_another_document_is_named(data: Data) -> None:
    recipe = small("modern", "phases=[{}]", CAUSAL)
    drawn = with_question(
        draw(recipe, data, 0), lambda q: replace(q, weight=np.ones_like(q.weight))
    )
    assert judged(drawn, recipe, data)["specials"].verdict == "error"


def test_static_masks_that_do_not_come_back_are_named(data: Data) -> None:
    recipe = small("bert", "phases=[{}]")
    drawn = draw(recipe, data, 0)
    assert drawn.repeated is not None
    findings = judged(replace(drawn, repeated=drawn.later), recipe, data)
    assert bad(findings) == {"repetition": "error"}


def test_labels_of_one_kind_are_named(data: Data) -> None:
    recipe = small("bert", "phases=[{}]", "objectives.masked=null")
    drawn = draw(recipe, data, 0)
    ones = np.ones_like(drawn.originals.relation)
    drawn = replace(drawn, originals=replace(drawn.originals, relation=ones))
    drawn = with_question(drawn, lambda q: replace(q, target=ones))
    assert bad(judged(drawn, recipe, data)) == {"labels": "warning"}


def test_documents_that_see_each_other_are_named(data: Data) -> None:
    findings = examined(small("modern", PHASES, "encoder.visibility.kind=bidirectional"), data)
    assert bad(findings) == {"documents": "warning"}
    assert "encoder.visibility.kind=document" in findings["documents"].advice


def test_a_rule_that_leaks_is_named(data: Data) -> None:
    recipe = small("modern", "phases=[{}]", CAUSAL, "encoder.visibility.kind=blurred")
    assert bad(examined(recipe, data)) == {"documents": "warning"}
