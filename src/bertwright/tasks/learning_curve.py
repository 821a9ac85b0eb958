"""What pre-training is worth: how well a task is learned from ever more examples, by the encoder as
it was pre-trained and by the same encoder without."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bertwright.errors import UserError
from bertwright.files import atomic_file
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.statistics import estimate
from bertwright.tasks.data import TaskData
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.fitting_heads import frozen_texts, head_for
from bertwright.tasks.run_warnings import missing_labels
from bertwright.tasks.splitting import nested_order
from bertwright.tasks.task import Task
from bertwright.tasks.task_training import Watch, unwatched

PRETRAINED, UNTRAINED = "pre-trained", "untrained"


@dataclass(frozen=True)
class Curve:
    """By encoder and number of examples, what every seed scored; the same of ``baselines``, which
    are fitted to the same examples."""

    task: Task
    scores: Mapping[str, Mapping[int, Sequence[float]]]
    baselines: Mapping[str, Mapping[int, Sequence[float]]]
    num_judged: int

    def as_dict(self) -> dict[str, Any]:
        """What ``finetune --sizes --json`` prints."""
        return {
            "task": self.task.name,
            "metric": self.task.metrics[0],
            "held_out_examples": self.num_judged,
            "sizes": _rows("encoder", self.scores),
            "baselines": _rows("baseline", self.baselines),
        }

    def draw(self, picture: Path) -> None:
        """The curve as a PNG, with an interval at every point that has several seeds."""
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.add_subplot()
        for encoder, of in {**self.scores, **self.baselines}.items():
            found = [estimate(scores) for scores in of.values()]
            ends = [
                [f.mean - f.low if f.interval else 0.0 for f in found],
                [f.high - f.mean if f.interval else 0.0 for f in found],
            ]
            axes.errorbar(list(of), [f.mean for f in found], ends, marker="o", label=encoder)
        axes.set_xscale("log")
        axes.set_xlabel("training examples")
        axes.set_ylabel(self.task.metrics[0])
        axes.set_title(self.task.name)
        axes.grid(alpha=0.3)
        axes.legend()
        FigureCanvasAgg(figure)
        with atomic_file(picture) as temporary:
            figure.savefig(temporary, dpi=120, format="png")


def learning_curve(
    model: TextModel,
    data: TaskData,
    sizes: Sequence[int | None],
    *,
    watch: Watch = unwatched,
    say: Callable[[str], None] = lambda line: None,
    settings: Mapping[str, Any] | None = None,
) -> Curve:
    """Fine-tune on so many examples each, None for all; the smaller are a part of the larger,
    stratified by label, drawn anew for every seed."""
    stated = FineTuning.of(dict(settings or {}))
    seeds = stated.seeds_in_turn()
    task, train, dev = data.parts()
    tuned = model if isinstance(model, FineTuned) else None
    recipe = model.model.recipe if tuned is None else tuned.net.recipe
    # One head for both: that of a model that goes on is not the usual one of its encoder.
    frozen = frozen_texts(stated.adaptation, [(task.answer, train)])
    chosen = {**(settings or {}), "head": head_for(stated.head, recipe, task.answer, tuned, frozen)}
    numbers = [len(train) if size is None else size for size in sizes]
    for number in numbers:
        if not 2 <= number <= len(train):
            raise UserError(f"--sizes {number}: there are {len(train)} training examples")
    untrained = _untrained(recipe.model_copy(update={"seed": seeds[0]}), model)
    scores: dict[str, dict[int, list[float]]] = {PRETRAINED: {}, UNTRAINED: {}}
    beside: dict[str, dict[int, list[float]]] = {}
    for number in sorted(set(numbers)):
        for seed in seeds:
            some = [train[n] for n in sorted(nested_order(task, train, seed)[:number])]
            for sentence in missing_labels(task, some, dev):
                say(f"{number} examples, seed {seed}: {sentence}")
            for name, encoder in ((PRETRAINED, model), (UNTRAINED, untrained)):
                alone: dict[str, Any] = {**chosen, "seed": seed, "seeds": 1}
                result = finetune(encoder, task, train=some, dev=dev, watch=watch, **alone)
                scores[name].setdefault(number, []).append(result.scores[0])
                say(f"{number} examples, {name}, seed {seed}: {result.scores[0]:.4g}")
                if name == PRETRAINED:
                    (comparison,) = result.comparisons.values()
                    for line in comparison.baselines:
                        of = beside.setdefault(line["baseline"], {})
                        of.setdefault(number, []).append(line[task.metrics[0]])
    return Curve(task, scores, beside, len(dev))


def _rows(name: str, found: Mapping[str, Mapping[int, Sequence[float]]]) -> list[dict[str, Any]]:
    return [
        {
            name: which,
            "examples": size,
            "scores": list(scores),
            "mean": estimate(scores).mean,
            "interval": estimate(scores).interval,
        }
        for which, of in found.items()
        for size, scores in of.items()
    ]


def _untrained(recipe: Recipe, model: TextModel) -> TextModel:
    """The encoder of a recipe as it is drawn before pre-training, for the pieces of a model."""
    fresh = Model.build(recipe, model.model.vocabulary_size, model.tokenizer)
    return TextModel(fresh, model.tokenizer, model.precision)
