"""Pre-training: a recipe and a data set in, a model folder out."""

import json
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

from bertwright.errors import UserError
from bertwright.machine.process import tune_process
from bertwright.model.folder import TRAINING
from bertwright.recipes import Recipe
from bertwright.text.shards import Data
from bertwright.training.clock import seconds_of
from bertwright.training.distributed import processes
from bertwright.training.first_model import first_model
from bertwright.training.pretraining_run import Pretrained, PretrainingRun, Recompiled, check_same
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.run_folder import RunFolder, choose_recipe, fitted
from bertwright.training.teaching import PieceTeacher


def pretrain(
    recipe: Recipe | str | Path | None,
    data: Data | str | Path,
    out: str | Path,
    *,
    changes: Iterable[str] = (),
    budget: str | float | None = None,
    resume: bool = False,
    start_from: str | Path | None = None,
    teacher: PieceTeacher | None = None,
    tensorboard: bool = False,
    quiet: bool = False,
    seconds_spent: float = 0.0,
) -> Pretrained:
    """Train the encoder of a recipe on a data set, and write its model folder.

    Args:
        recipe: a recipe, its name or file; None continues with that of the run or of the model to
            start from, else takes ``modern-mini``.
        data: a folder that ``prepare`` wrote.
        out: the folder to write; it must be free unless ``resume``.
        changes: ``key.path=value`` for a recipe that is named.
        budget: seconds, or a text such as ``20m``, in the place of the recipe's steps.
        resume: continue the run in ``out``, bit for bit; from the beginning if there is none.
        start_from: a model folder whose weights are the first.
        teacher: who is learned from beside what the recipe asks.
        quiet: without a line of progress.
        seconds_spent: of the budget, before this call.

    Errors: UserError for what does not fit together; Interrupted after a signal.
    """
    started = time.monotonic() - seconds_spent
    tune_process()
    folder = RunFolder(Path(out))
    continued = resume and folder.started
    if resume and not continued and not quiet:
        print(f"{out} holds no run: one begins", file=sys.stderr, flush=True)
    source = Path(start_from) if start_from is not None else None
    chosen = choose_recipe(recipe, changes, folder if resume else None, source)
    opened = data if isinstance(data, Data) else Data.open(data)
    chosen = fitted(chosen, opened)
    seconds = seconds_of(budget) if isinstance(budget, str) else budget
    if continued:
        folder.check_same(chosen)
        if source is not None and source.resolve() != folder.started_from:
            raise UserError(f"{out} was not started from {source}: continue without --from")
        if folder.finished:
            return _read(folder.path, opened, seconds)
        source = folder.started_from
    with processes() as mine:
        # Whatever may be wrong comes out before the folder is taken.
        model = first_model(chosen, opened, source)
        batches = RecipeBatches(chosen, opened, mine)
        batches.plan()
        if mine.first and not continued:
            folder.start(chosen, source)
        try:
            with folder.held() if mine.first else nullcontext():
                teaching = None if teacher is None else teacher.teaching(model, opened)
                run = PretrainingRun(
                    model, batches, opened, folder, mine, seconds, started, teaching
                )
                return run.to_the_end(tensorboard, quiet)
        except Recompiled as without:
            lost = without.seconds
        except Exception:
            if mine.first and not continued:
                folder.give_back()
            raise
    return pretrain(
        recipe,
        opened,
        out,
        changes=changes,
        budget=budget,
        resume=True,
        start_from=start_from,
        teacher=teacher,
        tensorboard=tensorboard,
        quiet=quiet,
        seconds_spent=lost,
    )


def _read(folder: Path, data: Data, budget: float | None) -> Pretrained:
    """A run that ended before."""
    about = json.loads((folder / TRAINING).read_text(encoding="utf-8"))
    if "steps" not in about:
        raise UserError(f"{folder} holds a model that was not trained there: start --from it")
    check_same(folder, data, about["data_hash"], budget, about["budget_seconds"])
    return Pretrained(
        folder,
        about["steps"],
        about["tokens"],
        about["seconds"],
        about["result"],
        tuple(about["warnings"]),
    )
