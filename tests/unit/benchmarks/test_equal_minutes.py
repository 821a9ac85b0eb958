"""Equal time as steps."""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from benchmarks import equal_minutes
from bertwright.core.errors import UserError
from small_study import small_study


class FakeProcess:
    """A process whose steps take 0.5 s for BERT and 2 s for others."""

    def __init__(self, program: str, settings: dict[str, Any], environment: object) -> None:
        self.seconds = 0.5 if settings["recipe"]["name"] == "bert-tiny" else 2.0

    def seconds_per_step(self, num_steps: int) -> float:
        """Return the time of a step."""
        return self.seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


@pytest.mark.full
def test_slower_arms_take_fewer_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equal_minutes, "TimedProcess", FakeProcess)
    study = small_study(equal={"steps": None, "time": "60s"})
    measured = equal_minutes.with_measured_steps(study, tmp_path, 3, [].append)
    assert measured.equal.tokens == 256 * 60 / 0.5
    assert {name: arm.cost for name, arm in measured.arms.items()} == {"one": 1.0, "other": 0.25}
    with pytest.raises(UserError, match="equal is 3 steps: only time becomes steps"):
        equal_minutes.with_measured_steps(small_study(), tmp_path, 3, [].append)
    phases = small_study(equal={"steps": None, "time": "60s"}, changes={"phases": [{}, {}]})
    with pytest.raises(UserError, match="phases and growing batches have no one speed"):
        equal_minutes.with_measured_steps(phases, tmp_path, 3, [].append)
