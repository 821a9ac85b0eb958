"""The folder of a run: what is settled when it starts, and checked when it continues.

``recipe.yaml`` is the resolved recipe, ``clock.jsonl`` the journal of decisions, ``metrics.jsonl``
the numbers, ``checkpoints/`` what a resumed run continues from. When a run has ended the same
folder is a model folder.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from bertwright.errors import UserError
from bertwright.files import atomic_folder, held_alone, write_text
from bertwright.model.folder import RECIPE, WEIGHTS, load_recipe
from bertwright.objectives import ReplacedToken
from bertwright.recipes import Recipe
from bertwright.recipes.comparison import differences
from bertwright.text.shards import Data
from bertwright.training.checkpoints import Checkpoints
from bertwright.training.clock import Journal
from bertwright.training.distributed import Processes
from bertwright.training.metrics_file import read_metrics

DEFAULT_RECIPE = "modern-mini"

JOURNAL, FROM = "clock.jsonl", "from"


class RunFolder:
    """One run's folder; ``journal`` and ``checkpoints`` live in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints")
        self.metrics = path / "metrics.jsonl"
        self.picture = path / "loss.png"

    @property
    def started(self) -> bool:
        """Whether a run was started here."""
        return (self.path / RECIPE).is_file()

    @property
    def finished(self) -> bool:
        """Whether a run has ended here and left its model."""
        return self.started and (self.path / WEIGHTS).is_file()

    def journal(self, mine: Processes) -> Journal:
        """The decisions taken so far; only the first process writes them down."""
        return Journal(self.path / JOURNAL if mine.first else None)

    @property
    def started_from(self) -> Path | None:
        """The model folder whose weights were the first of the run that was started here."""
        entries = Journal(self.path / JOURNAL).entries
        return next((Path(entry[FROM]) for entry in entries if FROM in entry), None)

    def start(self, recipe: Recipe, start_from: Path | None) -> None:
        """Take the folder for a new run.

        Errors: UserError when something is in it.
        """
        if self.started:
            raise UserError(
                f"{self.path} already holds a run: add --resume to continue it, or choose another "
                f"folder with -o"
            )
        with atomic_folder(self.path) as folder:
            if start_from is not None:
                Journal(folder / JOURNAL).add({FROM: str(start_from.resolve())})
            write_text(folder / RECIPE, recipe.as_yaml())

    @contextmanager
    def held(self) -> Generator[None]:
        """Lock the folder; UserError where another process trains in it."""
        with held_alone(self.path):
            yield

    def give_back(self) -> None:
        """Leave the folder free again, where a run has failed before it had anything to tell."""
        if read_metrics(self.metrics) or self.checkpoints.folder.exists():
            return
        for file in (self.metrics, self.path / JOURNAL, self.path / RECIPE):
            file.unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()

    def check_same(self, recipe: Recipe) -> None:
        """Refuse to continue with another recipe than the run was started with."""
        if differing := differences(load_recipe(self.path), recipe):
            raise UserError(
                f"{self.path} was started with another {differing[0].axis}: continue with the "
                f"recipe it has (name none), or start anew with another -o"
            )


def choose_recipe(
    recipe: Recipe | str | Path | None,
    changes: Iterable[str],
    continued: RunFolder | None,
    start_from: Path | None,
) -> Recipe:
    """The recipe that is meant: the named one, else that of the run that continues, else that of
    the model to start from, else the default."""
    if isinstance(recipe, Recipe):
        return recipe
    if recipe is None:
        if continued is not None and not continued.started and start_from is None:
            raise UserError(f"{continued.path} holds no run to continue: name the recipe of one")
        folder = continued.path if continued is not None and continued.started else start_from
        if folder is not None and not (folder / RECIPE).is_file():
            raise UserError(f"--from {folder} is not a model folder: it has no {RECIPE}")
        recipe = folder / RECIPE if folder is not None else DEFAULT_RECIPE
    return Recipe.load(recipe, *changes)


def fitted(recipe: Recipe, data: Data) -> Recipe:
    """The recipe with the size and the case of the vocabulary that the data set has.

    Errors: UserError when the data were cut into pieces by another kind of tokenizer, or when the
    recipe asks no question, or one that nothing gives rise to.
    """
    if not recipe.objectives:
        raise UserError(
            f"recipe {recipe.name} asks no question, as an encoder imported without heads: add "
            f"objectives.masked={{}}"
        )
    for phase in range(len(recipe.phases)):
        for turn in recipe.turns_of(phase):
            asked = turn.objectives.values()
            replaces = any(o.rewrites for o in asked)
            if not replaces and any(isinstance(o, ReplacedToken) for o in asked):
                raise UserError(
                    f"recipe {recipe.name}, phases.{phase} asks what was replaced, and nothing "
                    f"replaces pieces: state objectives.generated, without a share of its own"
                )
    wanted, has = recipe.text.tokenizer, data.manifest.tokenizer
    kind: str = wanted.kind  # type: ignore[attr-defined]
    if kind != has.kind and "items" in (kind, has.kind):
        raise UserError(
            f"{data.path} was prepared with pieces of the kind {has.kind} and recipe "
            f"{recipe.name} asks for {kind}: histories are for recipes as bert4rec, text for others"
        )
    if kind != has.kind:
        raise UserError(
            f"{data.path} was prepared with a {has.kind} tokenizer and recipe {recipe.name} asks "
            f"for {kind}: prepare the text with one, or add text.tokenizer.kind={has.kind}"
        )
    known = {"size": has.size, "lowercase": data.tokenizer.lowercase}
    own = {name: value for name, value in known.items() if name in type(wanted).model_fields}
    tokenizer = wanted.model_copy(update=own)
    return recipe.model_copy(
        update={"text": recipe.text.model_copy(update={"tokenizer": tokenizer})}
    )
