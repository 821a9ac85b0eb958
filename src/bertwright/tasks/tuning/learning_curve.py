"""Learning curves: the score by number of training examples, with and without pretraining."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bertwright.core.errors import UserError
from bertwright.core.files import atomic_file
from bertwright.core.messages import count_noun
from bertwright.core.statistics import estimate
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.data.splits import stratified_order
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.batching.data_warnings import missing_label_warnings
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.finetuning.run import ReporterFactory, no_reporter
from bertwright.tasks.heads.default_head import frozen_input_kind, resolve_head
from bertwright.tasks.task import Task

PRETRAINED, UNTRAINED = "pre-trained", "untrained"


@dataclass(frozen=True)
class LearningCurve:
    """Scores of every seed by encoder and number of training examples.

    ``baselines`` are fitted to the same examples.
    """

    task: Task
    scores: Mapping[str, Mapping[int, Sequence[float]]]
    baselines: Mapping[str, Mapping[int, Sequence[float]]]
    num_held_out: int

    def as_dict(self) -> dict[str, Any]:
        """Return the output of ``learning-curve --json``."""
        return {
            "task": self.task.name,
            "metric": self.task.metrics[0],
            "held_out_examples": self.num_held_out,
            "learning_curve": _curve_records("encoder", self.scores),
            "baselines": _curve_records("baseline", self.baselines),
        }

    def plot(self, file: Path) -> None:
        """Plot the curve as a PNG, with intervals if there are several seeds."""
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.add_subplot()
        for name, by_size in {**self.scores, **self.baselines}.items():
            points = [estimate(scores) for scores in by_size.values()]
            errors = [
                [p.mean - p.low if p.interval else 0.0 for p in points],
                [p.high - p.mean if p.interval else 0.0 for p in points],
            ]
            axes.errorbar(list(by_size), [p.mean for p in points], errors, marker="o", label=name)
        axes.set_xscale("log")
        axes.set_xlabel("training examples")
        axes.set_ylabel(self.task.metrics[0])
        axes.set_title(self.task.name)
        axes.grid(alpha=0.3)
        axes.legend()
        FigureCanvasAgg(figure)
        with atomic_file(file) as temporary:
            figure.savefig(temporary, dpi=120, format="png")


def compute_learning_curve(
    model: TextModel,
    data: TaskData,
    sizes: Sequence[int | None],
    *,
    make_reporter: ReporterFactory = no_reporter,
    log: Callable[[str], None] = lambda line: None,
    settings: Mapping[str, Any] | None = None,
) -> LearningCurve:
    """Fine-tune on subsets of the training examples with the given sizes; None for all examples.

    Smaller subsets are contained in larger ones, are stratified by label, and depend on the seed.
    """
    config = FineTuningConfig.from_settings(dict(settings or {}))
    seeds = config.seed_range()
    task, train, dev = data.load_splits()
    fine_tuned = model if isinstance(model, FineTunedModel) else None
    recipe = model.model.recipe if fine_tuned is None else fine_tuned.task_model.recipe
    # Both encoders get the same head, even if a fine-tuned model has a custom one.
    adaptation = config.adaptation
    frozen = frozen_input_kind(adaptation, [(task.output_type, train)])
    head = resolve_head(
        config.head, recipe, task.output_type, fine_tuned, frozen, adaptation.adds_features
    )
    settings = {**(settings or {}), "head": head}
    if len(train) < 2:
        raise UserError("a learning curve needs two training examples or more: name another file")
    sizes = [len(train) if size is None else size for size in sizes]
    for size in sizes:
        if not 2 <= size <= len(train):
            raise UserError(
                f"--sizes {size}: choose numbers from 2 to {len(train):,}, that of the training "
                f"examples"
            )
    untrained = _untrained_model(recipe.model_copy(update={"seed": seeds[0]}), model)
    scores: dict[str, dict[int, list[float]]] = {PRETRAINED: {}, UNTRAINED: {}}
    baseline_scores: dict[str, dict[int, list[float]]] = {}
    for size in sorted(set(sizes)):
        for seed in seeds:
            subset = [train[n] for n in sorted(stratified_order(task, train, seed)[:size])]
            for warning in missing_label_warnings(task, subset, dev):
                log(f"{count_noun(size, 'example')}, seed {seed}: {warning}")
            for name, encoder in ((PRETRAINED, model), (UNTRAINED, untrained)):
                seed_settings: dict[str, Any] = {**settings, "seed": seed, "seeds": 1}
                result = finetune(
                    encoder,
                    task,
                    train=subset,
                    dev=dev,
                    make_reporter=make_reporter,
                    **seed_settings,
                )
                scores[name].setdefault(size, []).append(result.scores[0])
                log(f"{count_noun(size, 'example')}, {name}, seed {seed}: {result.scores[0]:.4g}")
                if name == PRETRAINED:
                    (comparison,) = result.comparisons.values()
                    for line in comparison.baselines:
                        by_size = baseline_scores.setdefault(line["baseline"], {})
                        by_size.setdefault(size, []).append(line[task.metrics[0]])
    return LearningCurve(task, scores, baseline_scores, len(dev))


def _curve_records(
    name: str, scores: Mapping[str, Mapping[int, Sequence[float]]]
) -> list[dict[str, Any]]:
    return [
        {
            name: label,
            "examples": size,
            "scores": list(values),
            "mean": estimate(values).mean,
            "interval": estimate(values).interval,
        }
        for label, by_size in scores.items()
        for size, values in by_size.items()
    ]


def _untrained_model(recipe: Recipe, model: TextModel) -> TextModel:
    """Return the untrained encoder of a recipe, with the tokenizer of a model."""
    fresh = Model.build(recipe, model.model.vocab_size, model.tokenizer)
    return TextModel(fresh, model.tokenizer, model.precision)
