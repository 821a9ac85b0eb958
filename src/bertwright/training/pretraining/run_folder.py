"""The folder of a pre-training run.

``recipe.yaml`` is the resolved recipe, ``decisions.jsonl`` the decision log, ``metrics.jsonl`` the
metrics, ``checkpoints/`` the states to resume from, which are also models. After the run it is the
model folder.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from bertwright.core.errors import UserError
from bertwright.core.files import atomic_folder, output_lock, read_json_lines, write_text
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import (
    TOKENIZER_FILE,
    TOKENIZER_INFO_FILE,
    Tokenizer,
)
from bertwright.models.saving import RECIPE_FILE, WEIGHTS_FILE, load_recipe, model_folder_error
from bertwright.recipes import Recipe
from bertwright.recipes.comparison import differences
from bertwright.training.checkpoint_model import is_checkpoint, run_of_checkpoint
from bertwright.training.checkpoints import CheckpointManager
from bertwright.training.clock import DecisionLog
from bertwright.training.process_group import ProcessGroup
from bertwright.training.reporters.metrics_file import read_metrics

DEFAULT_RECIPE = "modern-mini"

DECISIONS_FILE, START_FROM_KEY = "decisions.jsonl", "from"


class RunFolder:
    """The folder of a run, with its checkpoints and decision log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = CheckpointManager(path / "checkpoints")
        self.metrics_file = path / "metrics.jsonl"
        self.loss_plot = path / "loss.png"

    @property
    def is_started(self) -> bool:
        """Return whether the folder holds a run."""
        return (self.path / RECIPE_FILE).is_file()

    @property
    def is_finished(self) -> bool:
        """Return whether the run is finished and its model saved."""
        return self.is_started and (self.path / WEIGHTS_FILE).is_file()

    def decision_log(self, process_group: ProcessGroup) -> DecisionLog:
        """Open the decision log; only the main process writes to the file."""
        return DecisionLog(self.path / DECISIONS_FILE if process_group.is_main else None)

    @property
    def start_from(self) -> Path | None:
        """Return the model folder with the initial weights of the run, if any."""
        # Another process may be writing the log, so it is not truncated to its last whole line.
        entries = read_json_lines(self.path / DECISIONS_FILE)
        return next(
            (Path(entry[START_FROM_KEY]) for entry in entries if START_FROM_KEY in entry), None
        )

    def start(self, recipe: Recipe, tokenizer: Tokenizer, start_from: Path | None) -> None:
        """Create the folder for a new run.

        Errors: UserError if it is not empty.
        """
        if self.is_started:
            raise UserError(
                f"{self.path} already holds a run: add --resume to continue it, or choose another "
                f"folder with -o"
            )
        with atomic_folder(self.path) as folder:
            if start_from is not None:
                DecisionLog(folder / DECISIONS_FILE).add(
                    {START_FROM_KEY: str(start_from.resolve())}
                )
            tokenizer.save(folder)
            write_text(folder / RECIPE_FILE, recipe.as_yaml())

    def lock(self) -> AbstractContextManager[None]:
        """Lock the folder; UserError if another process trains in it."""
        return output_lock(self.path)

    def release(self) -> None:
        """Remove the folder of a run that failed before it wrote metrics or checkpoints."""
        if read_metrics(self.metrics_file) or self.checkpoints.folder.exists():
            return
        for name in (DECISIONS_FILE, TOKENIZER_FILE, TOKENIZER_INFO_FILE, RECIPE_FILE):
            (self.path / name).unlink(missing_ok=True)
        self.metrics_file.unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()

    def require_same_recipe(self, recipe: Recipe) -> None:
        """Raise UserError if the run was started with another recipe."""
        if changes := differences(load_recipe(self.path), recipe):
            raise UserError(
                f"{self.path} was started with another {changes[0].axis}: omit the recipe to "
                f"continue with the same one, or start a new run with another -o"
            )


def resolve_recipe(
    recipe: Recipe | str | Path | None,
    overrides: Iterable[str],
    resumed_run: RunFolder | None,
    start_from: Path | None,
) -> Recipe:
    """Return the named recipe, else the resumed run's, ``start_from``'s, or the default."""
    if isinstance(recipe, Recipe):
        return recipe
    if recipe is None:
        if resumed_run is not None and not resumed_run.is_started and start_from is None:
            raise UserError(f"{resumed_run.path} holds no run to continue: name the recipe of one")
        folder = (
            resumed_run.path if resumed_run is not None and resumed_run.is_started else start_from
        )
        if folder is not None and is_checkpoint(folder):
            folder = run_of_checkpoint(folder)
        if folder is not None and not (folder / RECIPE_FILE).is_file():
            raise model_folder_error(folder)
        recipe = folder / RECIPE_FILE if folder is not None else DEFAULT_RECIPE
    return Recipe.load(recipe, *overrides)


def fit_recipe_to_data(recipe: Recipe, data: Dataset, has_teacher: bool = False) -> Recipe:
    """Return the recipe with the vocabulary size and lowercasing of the data set.

    Errors: UserError if the data were prepared with another kind of tokenizer, if the recipe has no
    objectives and no teacher, or if it detects replaced tokens without a generator.
    """
    if not recipe.objectives and not has_teacher:
        raise UserError(
            f"recipe {recipe.name} has no objectives, like an encoder imported without heads: add "
            f"objectives.masked={{}}, or name a --teacher"
        )
    for phase in range(len(recipe.phases)):
        for group in recipe.objective_schedule(phase):
            objectives = group.objectives.values()
            has_generator = any(o.capabilities.is_generator for o in objectives)
            detects = any(o.capabilities.detects_replacements for o in objectives)
            if detects and not has_generator:
                raise UserError(
                    f"recipe {recipe.name}, phases.{phase} detects replaced tokens, but no "
                    f"objective replaces any: add objectives.generated, without a fraction"
                )
    config, prepared = recipe.text.tokenizer, data.manifest.tokenizer
    kind: str = config.kind  # type: ignore[attr-defined]
    if kind != prepared.kind and "items" in (kind, prepared.kind):
        raise UserError(
            f"{data.path} was prepared with tokenizer kind {prepared.kind}, but recipe "
            f"{recipe.name} needs {kind}: use histories with recipes such as bert4rec, text with "
            f"others"
        )
    if kind != prepared.kind:
        raise UserError(
            f"{data.path} was prepared with a {prepared.kind} tokenizer, but recipe {recipe.name} "
            f"needs {kind}: prepare the text with one, or add text.tokenizer.kind={prepared.kind}"
        )
    properties = {"vocab_size": prepared.vocab_size, "lowercase": data.tokenizer.lowercase}
    fields = type(config).model_fields
    tokenizer = config.model_copy(update={n: v for n, v in properties.items() if n in fields})
    return recipe.model_copy(
        update={"text": recipe.text.model_copy(update={"tokenizer": tokenizer})}
    )
