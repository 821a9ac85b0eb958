"""The whole way: measure, plan, say what it will take, train, write, measure again."""

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bertwright.compression.compressing import compress
from bertwright.compression.method import Method
from bertwright.compression.suiting import require_suiting
from bertwright.errors import UserError
from bertwright.files import atomic_folder, require_free, write_text
from bertwright.interop.loading import load
from bertwright.recipes.loading import merged
from bertwright.shipping.candidates import (
    Candidate,
    Candidates,
    milliseconds,
    shipped_bytes,
    untrained,
    write,
)
from bertwright.shipping.goal import Goal
from bertwright.tasks.data import TaskData
from bertwright.tasks.evaluation import evaluate
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.formats.examples import Examples

Say = Callable[[str], None]

AS_FORWARD = 3
"""A step of training costs as much as so many answers."""

TIMED = 64
"""Examples by which it is foreseen how long training takes."""


@dataclass(frozen=True)
class Shipment:
    """A model that was fine-tuned, what it must become, and by which method.

    ``settings`` are those of fine-tuning, for all stages of the method.
    """

    model: FineTuned
    goal: Goal
    data: TaskData
    method: str
    say: Say
    settings: Mapping[str, Any]

    def ship(self, out: Path) -> dict[str, Any]:
        """Write the largest model that is small and fast enough, and say what it came to: the
        ``goal``, the ``candidates`` that were measured, the ``plan``; ``base`` and ``shipped``,
        each with score, bytes and milliseconds, the points ``lost``, whether the goal is ``kept``,
        and what of it is ``missed``. It is written where it has lost too much, too.

        Errors: UserError where nothing is small and fast enough, for a model without layers, for
        rows that are longer than it reads, for settings that are none, and for a method that needs
        the whole model.
        """
        require_free(out)
        for stage in self._stages():
            FineTuning.of(stage)
        if Method.load(self.method).student is not None:
            raise UserError(
                f"a goal is kept with some of the layers of the model: {self.method} begins from "
                f"nothing: choose another method"
            )
        if not self.depth:
            raise UserError(
                "a goal is kept with some of the layers of a model, and this has none: export it "
                "with --to onnx --int8, or trim it"
            )
        self._require_teachable()
        longest = self.model.net.encoder.longest
        if longest is not None and self.goal.length > longest:
            raise UserError(
                f"--goal latency: the model reads rows of {longest} pieces at most, and "
                f"{self.goal.length} are asked: ask for shorter ones"
            )
        task, train, dev = self.data.parts()
        with TemporaryDirectory() as work:
            measured = Candidates(self.model, self.goal, Path(work), self.say)
            chosen = measured.chosen()
            self._tell(chosen, train)
            small = self.model
            if chosen.layers < self.depth:
                given = TaskData(task, train=train, dev=dev)
                layers, settings = chosen.layers, self.settings
                found = compress(self.model, self.method, given, layers=layers, settings=settings)
                small = found.best.model
            base, shipped = Path(work) / "base", Path(work) / "shipped"
            write(self.model, "weights", base)
            write(small, chosen.form, shipped)
            result = self._result(measured, chosen, base, shipped, dev)
            write_text(shipped / "shipping.json", json.dumps(result, indent=1) + "\n")
            with atomic_folder(out) as folder:
                shutil.copytree(shipped, folder, dirs_exist_ok=True)
        return result

    @property
    def depth(self) -> int:
        """Of the model as it is."""
        return len(self.model.net.encoder.blocks)

    def _require_teachable(self) -> None:
        """Errors: UserError for a method that can make no student of some of the layers, however
        many."""
        reason: UserError | None = None
        for layers in range(1, self.depth):
            try:
                encoder = self.model.net.recipe.encoder
                require_suiting(Method.load(self.method), encoder, None, layers)
                return
            except UserError as error:
                reason = error
        if reason is not None:
            raise UserError(
                f"--goal takes some of the layers, which {self.method} cannot teach ({reason}): "
                f"choose another method"
            )

    def _tell(self, chosen: Candidate, train: Examples) -> None:
        """The plan, before it begins."""
        self.say(f"plan: {chosen.name}")
        if chosen.layers == self.depth:
            self.say(f"no layer has to go: nothing is trained, and {self.method} is not needed")
            return
        minutes = self._foreseen_seconds(chosen, train) / 60
        self.say(f"{self.method} trains them: about {minutes:.1f} minutes")

    def _foreseen_seconds(self, chosen: Candidate, train: Examples) -> float:
        """What training should take: every stage answers all examples in every epoch, and the
        teacher does so once."""
        stages = self._stages()
        epochs = sum(FineTuning.of(stage).epochs for stage in stages)
        small = untrained(self.model, chosen.layers)
        of_student, of_teacher = (_seconds_each(own, train) for own in (small, self.model))
        return len(train) * (AS_FORWARD * epochs * of_student + len(stages) * of_teacher)

    def _stages(self) -> list[Mapping[str, Any]]:
        """The settings of each."""
        return [merged(own.settings, self.settings) for own in Method.load(self.method).stages]

    def _result(
        self, measured: Candidates, chosen: Candidate, base: Path, shipped: Path, dev: Examples
    ) -> dict[str, Any]:
        told: dict[str, dict[str, float]] = {}
        for name, folder in (("base", base), ("shipped", shipped)):
            score = evaluate(load(folder), dev)["score"]
            size, taken = shipped_bytes(folder), milliseconds(folder, self.goal)
            told[name] = {"score": score, "bytes": size, "milliseconds": taken}
        lost = told["base"]["score"] - told["shipped"]["score"]
        own = told["shipped"]
        missed = self.goal.missed(own["bytes"], own["milliseconds"], lost)
        return {
            "goal": self.goal.said,
            "candidates": {
                own.name: {"bytes": own.bytes, "milliseconds": own.milliseconds}
                for own in measured.known
            },
            "plan": chosen.name,
            "method": self.method if chosen.layers < self.depth else None,
            **told,
            "lost": 100 * lost,
            "kept": not missed,
            "missed": missed,
        }


def _seconds_each(model: FineTuned, examples: Examples) -> float:
    some = examples[:TIMED]
    model.predict(some)
    began = time.perf_counter()
    model.predict(some)
    return (time.perf_counter() - began) / len(some)
