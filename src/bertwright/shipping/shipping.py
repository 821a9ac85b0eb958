"""The whole way: measure, plan, say what it will take, train, write, measure again."""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bertwright.bench.artefacts.comparing import Artefact, seconds_in_turns
from bertwright.compression.compressing import compress
from bertwright.compression.method import Method
from bertwright.compression.quantisation import Quantised
from bertwright.errors import UserError
from bertwright.files import atomic_folder, require_free, require_room, write_text
from bertwright.interop.loading import load
from bertwright.recipes.loading import merged
from bertwright.shipping.candidates import Candidates
from bertwright.shipping.forms import PLAIN, shipped_bytes
from bertwright.shipping.goal import Goal
from bertwright.shipping.planning import Plan, Planner
from bertwright.shipping.shapes import whole
from bertwright.tasks.answers import Prediction
from bertwright.tasks.data import TaskData
from bertwright.tasks.evaluation import evaluate
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.intervals import lead

Say = Callable[[str], None]

AS_FORWARD = 3
"""A step of training costs as much as so many answers."""

TIMED = 64
"""Examples by which it is foreseen how long training takes."""

ANSWERS, TURNS = 10, 5
"""Of the model and of what is shipped: how many each gives in a turn, and how often they take one.
"""


@dataclass(frozen=True)
class Shipment:
    """A model that was fine-tuned, what it must become, and by which method.

    ``settings`` are those of fine-tuning, for all stages of the method. In the folder ``work`` what
    could be shipped and the student behind each stage but the last are kept: a run that was stopped
    goes on with them.
    """

    model: FineTuned
    goal: Goal
    data: TaskData
    method: str
    say: Say
    settings: Mapping[str, Any]
    work: Path | None = None

    def ship(self, out: Path) -> dict[str, Any]:
        """Write the best model that is small and fast enough, and say what it came to: the
        ``goal``, the ``candidates`` that were measured, what forms and shapes were seen to lose,
        the ``plan``; ``base`` and ``shipped``, each with score, bytes and milliseconds, the points
        ``lost``, whether the goal is ``kept``, and what of it is ``missed``. It is written where it
        has lost too much, too.

        Errors: UserError where nothing is small and fast enough, for rows that are longer than the
        model reads, for settings that are none, and for a method that needs the whole model.
        """
        require_free(out)
        if self.work is not None:
            require_room(self.work / "student")
        self._require_possible()
        task, train, dev = self.data.parts()
        method = Method.load(self.method)
        with (
            nullcontext(self.work) if self.work else TemporaryDirectory() as work,
            TemporaryDirectory() as ending,
        ):
            measured = Candidates(self.model, self.goal, train, Path(work), self.say)
            planner = Planner(self.model, self.goal, method, measured, train, dev, self.say)
            plan = planner.plan()
            self._tell(plan, train)
            base = measured.folder(whole(self.model), PLAIN)
            shipped = measured.folder(plan.chosen.shape, plan.chosen.form)
            if plan.model is not None:
                small = compress(
                    self.model,
                    self.method,
                    TaskData(task, train=train, dev=dev),
                    student=plan.model,
                    work=self.work,
                    settings=self.settings,
                ).best.model
                shipped = Path(ending) / "shipped"
                plan.chosen.form.write(small, train, shipped)
            result = {
                "goal": self.goal.said,
                "candidates": {
                    own.name: {"bytes": own.bytes, "milliseconds": own.milliseconds}
                    for own in measured.known
                },
                **planner.seen(),
                "plan": plan.chosen.name,
                "method": None if plan.model is None else self.method,
                **self._ending(base, shipped, dev),
            }
            with atomic_folder(out) as folder:
                shutil.copytree(shipped, folder, dirs_exist_ok=True)
                write_text(folder / "shipping.json", json.dumps(result, indent=1) + "\n")
        return result

    def _require_possible(self) -> None:
        """Errors: UserError for what is seen before anything is measured."""
        if "seeds" in self.settings:
            raise UserError("a goal is kept by one model: leave seeds= out")
        for stage in self._stages():
            FineTuning.of(stage)
        method = Method.load(self.method)
        if method.student is not None or method.sharing is not None:
            raise UserError(
                f"a goal is kept with a part of the model, and {self.method} begins with something "
                f"else: choose another method"
            )
        if any(isinstance(FineTuning.of(s).adaptation, Quantised) for s in self._stages()):
            raise UserError(
                "for a goal weights are rounded behind the training: choose a method and an "
                "adaptation that round nothing, or leave --goal out"
            )
        chooses = any(stage.removing or stage.bits for stage in method.stages)
        if chooses or method.taken == "needed":
            raise UserError(
                f"a goal is kept with a part of the model, which {self.method} would choose by "
                f"itself: choose another method"
            )
        longest = self.model.net.encoder.longest
        asked = self.goal.milliseconds is not None
        if asked and longest is not None and self.goal.length > longest:
            raise UserError(
                f"--goal latency: the model reads rows of {longest} pieces at most, and "
                f"{self.goal.length} are asked: ask for shorter ones"
            )

    def _tell(self, plan: Plan, train: Examples) -> None:
        """The plan, before it begins."""
        self.say(f"plan: {plan.chosen.name}")
        if plan.model is None:
            self.say(f"nothing is trained, and {self.method} is not needed")
            return
        minutes = self._foreseen_seconds(plan.model, train) / 60
        self.say(f"{self.method} trains what is left: about {minutes:.1f} minutes")

    def _foreseen_seconds(self, small: FineTuned, train: Examples) -> float:
        """What training should take: every stage answers all examples in every epoch, and the
        teacher does so once."""
        stages = self._stages()
        epochs = sum(FineTuning.of(stage).epochs for stage in stages)
        of_student, of_teacher = (_seconds_each(own, train) for own in (small, self.model))
        return len(train) * (AS_FORWARD * epochs * of_student + len(stages) * of_teacher)

    def _stages(self) -> list[Mapping[str, Any]]:
        """The settings of each."""
        return [merged(own.settings, self.settings) for own in Method.load(self.method).stages]

    def _ending(self, base: Path, shipped: Path, dev: Examples) -> dict[str, Any]:
        """What the model is and what it was, from what stands in their folders; timed in turns."""
        told: dict[str, dict[str, float]] = {}
        answers: list[Sequence[Prediction]] = []
        folders = base, shipped
        length = min(self.goal.length, self.model.net.encoder.longest or self.goal.length)
        rows = {"batch": self.goal.rows, "length": length, "threads": None}
        seconds = seconds_in_turns([Artefact(own) for own in folders], rows, ANSWERS, TURNS)
        for name, folder, taken in zip(("base", "shipped"), folders, seconds, strict=True):
            model, size = self._loaded(folder), shipped_bytes(folder)
            answers.append(model.predict(dev))
            score = evaluate(model, dev)["score"]
            told[name] = {"score": score, "bytes": size, "milliseconds": 1000 * median(taken)}
        lost = told["base"]["score"] - told["shipped"]["score"]
        own = told["shipped"]
        missed = self.goal.missed(own["bytes"], own["milliseconds"], lost)
        between = lead(self.model.task, dev, *answers)
        known = isfinite(between.low)
        return {
            **told,
            "lost": 100 * lost,
            "lost_interval": [100 * between.low, 100 * between.high] if known else None,
            "examples": len(dev),
            "kept": not missed,
            "missed": missed,
        }

    @staticmethod
    def _loaded(folder: Path) -> FineTuned:
        model = load(folder)
        assert isinstance(model, FineTuned), "what is shipped solves a task"
        return model


def _seconds_each(model: FineTuned, examples: Examples) -> float:
    some = examples[:TIMED]
    model.predict(some)
    began = time.perf_counter()
    model.predict(some)
    return (time.perf_counter() - began) / len(some)
