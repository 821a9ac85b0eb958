"""The evaluator during a run: all processes evaluate at the same steps, and the same text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import Model
from bertwright.training.clock import BudgetClock, DecisionLog, Progress
from bertwright.training.evaluation import evaluator as evaluators
from bertwright.training.evaluation.evaluator import HeldOutEvaluator
from bertwright.training.process_group import ProcessGroup
from bertwright.training.run_warnings import RunWarnings
from toy_recipes import toy


@dataclass(frozen=True)
class FirstProcess(ProcessGroup):
    """A process that keeps what it sends to the other one."""

    sent: list[Any] = field(default_factory=list)

    def broadcast(self, value: Any) -> Any:
        self.sent.append(value)
        return value


@dataclass(frozen=True)
class SecondProcess(ProcessGroup):
    """A process that receives what the first one has sent."""

    sent: list[Any] = field(default_factory=list)

    def broadcast(self, value: Any) -> Any:
        return self.sent.pop(0)


@pytest.mark.parametrize("is_slow", [(False, True), (True, False)])
def test_processes_agree_although_their_clocks_differ(
    data: Dataset, monkeypatch: pytest.MonkeyPatch, is_slow: tuple[bool, bool]
) -> None:
    """Evaluations take about as long as a budget of 100 seconds allows."""
    recipe = toy("bert", "text.tokenizer.kind=wordpiece")
    model = Model.build(recipe, data.tokenizer.vocab_size, data.tokenizer)
    tokens_at_end = evaluators.NUM_TOKENS_AT_END + evaluators.BITS_PER_BYTE_TOKENS
    limit = 10.0 * evaluators.NUM_TOKENS_DURING_TRAINING / tokens_at_end
    sent: list[Any] = []
    behaviours: list[tuple[list[bool], float]] = []
    for slow, group in zip(
        is_slow, (FirstProcess(sent=sent), SecondProcess(sent=sent)), strict=True
    ):
        seconds, fractions = [0.0], list[float]()

        def evaluate(*arguments: Any, read: list[float] = fractions) -> Mapping[str, float]:
            read.append(arguments[-1])
            return {}

        times = iter((0.0, limit * (1.01 if slow else 0.99)))
        monkeypatch.setattr(evaluators, "time", SimpleNamespace(monotonic=lambda t=times: next(t)))
        monkeypatch.setattr(evaluators, "evaluate", evaluate)
        clock = BudgetClock(100.0, start_time=0.0, now=lambda s=seconds: s[0])
        warnings = RunWarnings(DecisionLog(), lambda line: None)
        evaluator = HeldOutEvaluator(recipe, data, model, clock, warnings, lambda line: None, group)
        evaluator(Progress(1, 0.05))
        due: list[bool] = []
        for part in (9.5, 9.8, 10.0, 10.5):
            seconds[0] = limit * (part + 0.2 * slow)
            due.append(evaluator.is_due(Progress(1, 0.05), Progress(2, 0.15)))
        evaluator.evaluate_at_end()
        behaviours.append((due, fractions[0]))
    assert behaviours[0] == behaviours[1]
    assert not sent
